"""The measurements of `refinery bench retrieve`."""
