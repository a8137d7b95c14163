"""The checkpoints of the sample job, without PyTorch."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/training_env/files/checkpoints.py"


@pytest.fixture(name="checkpoints", scope="module")
def checkpoints_module() -> ModuleType:
    specification = importlib.util.spec_from_file_location("checkpoints", PROGRAM)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def write(checkpoints: ModuleType, directory: Path, step: int, content: str = "weights", job: str = "7") -> Path:
    return Path(
        checkpoints.write(
            str(directory),
            step,
            {
                "model.pt": lambda path: Path(path).write_text(f"{content} {step}"),
                "training.pt": lambda path: Path(path).write_text("optimizer"),
            },
            job,
        )
    )


def test_a_checkpoint_holds_its_files_a_manifest_and_the_marker(checkpoints: ModuleType, tmp_path: Path) -> None:
    path = write(checkpoints, tmp_path / "run", 100)
    assert path == tmp_path / "run/step-00000100"
    assert sorted(file.name for file in path.iterdir()) == ["COMPLETE", "MANIFEST.sha256", "model.pt", "training.pt"]
    assert [entry.name for entry in path.parent.iterdir()] == ["step-00000100"]
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "MANIFEST.sha256"], cwd=path, check=True)


def test_a_writer_that_fails_leaves_the_earlier_checkpoints_and_nothing_finished(
    checkpoints: ModuleType, tmp_path: Path
) -> None:
    good = write(checkpoints, tmp_path, 100)

    def disk_full(path: str) -> None:
        Path(path).write_text("half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        checkpoints.write(str(tmp_path), 200, {"model.pt": disk_full}, "7")
    assert not (tmp_path / "step-00000200").exists()
    assert not (tmp_path / "step-00000200.tmp-7/COMPLETE").exists()
    assert checkpoints.newest(str(tmp_path)) == (100, str(good))


def test_what_an_earlier_start_of_the_same_job_left_is_no_obstacle(checkpoints: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "step-00000100.tmp-7").mkdir()
    (tmp_path / "step-00000100.tmp-7/old.pt").write_text("half")
    path = write(checkpoints, tmp_path, 100)
    assert not (path / "old.pt").exists()
    checkpoints.verify(str(path))


def test_the_newest_is_the_one_with_the_highest_step(checkpoints: ModuleType, tmp_path: Path) -> None:
    for step in (100, 20, 100_000_000):
        write(checkpoints, tmp_path, step)
    assert checkpoints.newest(str(tmp_path)) == (100_000_000, str(tmp_path / "step-100000000"))


def test_there_is_none_in_a_folder_that_is_not_there(checkpoints: ModuleType, tmp_path: Path) -> None:
    assert checkpoints.newest(str(tmp_path / "nothing")) is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "model.pt").write_text("rotten"), "model.pt isn't what MANIFEST.sha256 says"),
        (lambda path: (path / "model.pt").unlink(), "lacks its file model.pt"),
        (lambda path: (path / "MANIFEST.sha256").unlink(), "no readable MANIFEST.sha256"),
        (lambda path: (path / "MANIFEST.sha256").write_text(""), "empty MANIFEST.sha256"),
        (lambda path: (path / "MANIFEST.sha256").write_bytes(b"\xff\xfe"), "no readable MANIFEST.sha256"),
        (lambda path: (path / "MANIFEST.sha256").write_text("0" * 64 + "  ../x\n"), "unreadable line"),
    ],
    ids=["changed file", "missing file", "no manifest", "empty manifest", "binary manifest", "path out of the folder"],
)
def test_a_damaged_newest_is_named_and_passed_over(
    checkpoints: ModuleType, tmp_path: Path, damage, message: str
) -> None:
    good = write(checkpoints, tmp_path, 100)
    damage(write(checkpoints, tmp_path, 200))
    said: list[str] = []
    assert checkpoints.newest(str(tmp_path), said.append) == (100, str(good))
    assert len(said) == 1
    assert message in said[0]
    assert "step-00000200" in said[0]


def test_one_without_its_marker_is_not_looked_at(checkpoints: ModuleType, tmp_path: Path) -> None:
    (write(checkpoints, tmp_path, 100) / "COMPLETE").unlink()
    said: list[str] = []
    assert checkpoints.newest(str(tmp_path), said.append) is None
    assert said == []


def test_a_damaged_one_is_kept_aside_when_its_step_comes_again(checkpoints: ModuleType, tmp_path: Path) -> None:
    for _time in range(2):
        (write(checkpoints, tmp_path, 100) / "model.pt").write_text("rotten")
    path = write(checkpoints, tmp_path, 100)
    checkpoints.verify(str(path))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "step-00000100",
        "step-00000100.damaged-7",
        "step-00000100.damaged-7-2",
    ]


def test_a_whole_one_is_never_written_again(checkpoints: ModuleType, tmp_path: Path) -> None:
    write(checkpoints, tmp_path, 100, "first")
    path = write(checkpoints, tmp_path, 100, "second", job="8")
    assert (path / "model.pt").read_text() == "first 100"
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-00000100"]


@pytest.mark.parametrize(("keep", "left"), [(0, [100, 200, 300]), (2, [200, 300]), (5, [100, 200, 300])])
def test_only_as_many_are_kept_as_asked_for(
    checkpoints: ModuleType, tmp_path: Path, keep: int, left: list[int]
) -> None:
    for step in (100, 200, 300):
        write(checkpoints, tmp_path, step)
    checkpoints.prune(str(tmp_path), keep)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [checkpoints.name(step) for step in left]


def test_the_interface_of_this_machine_is_found_by_its_address(checkpoints: ModuleType) -> None:
    assert checkpoints.interface_towards("127.0.0.1") == "lo"


def test_no_interface_for_a_name_that_does_not_exist(checkpoints: ModuleType) -> None:
    assert checkpoints.interface_towards("no-such-host.invalid") is None
