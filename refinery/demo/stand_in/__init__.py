"""`refinery run FILE --stand-in`: a paper's steps on rows that ship, with tiny models and a teacher on loopback, in seconds."""
