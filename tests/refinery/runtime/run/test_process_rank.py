import pytest

from refinery.runtime.run.process_rank import is_main_process, local_process_rank, num_processes, process_rank


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 0, 1, True)),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}, (0, 0, 4, True)),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, (3, 1, 4, False)),
    ],
)
def test_a_process_is_the_one_that_its_launcher_numbers(monkeypatch, environment, expected):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (process_rank(), local_process_rank(), num_processes(), is_main_process()) == expected
