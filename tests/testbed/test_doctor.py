import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import doctor, probes
from testbed.__main__ import main
from testbed.doctor import BackEnd, Lack

ROOT = Path(__file__).parent.parent.parent


def test_auto_takes_the_first_that_works_and_says_why() -> None:
    lack = (Lack("x", "y"),)
    assert doctor.pick([BackEnd("a", ""), BackEnd("b", "")]) == ("a", "the first that works")
    name, why = doctor.pick([BackEnd("a", "", lack), BackEnd("b", "")])
    assert (name, why) == ("b", "the first that works; a would come first")
    assert doctor.pick([BackEnd("a", "", lack)]) == (None, "none works here")


def test_the_doctor_takes_less_than_2_s_and_speaks_json() -> None:
    start = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "doctor", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    end = os.times()  # of the processor: what else runs on the machine does not count
    took_s = sum(end[2:4]) - sum(start[2:4])
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["auto"] else 1)
    assert [b["name"] for b in found["back_ends"]] == [
        "guest", "guest-real", "host", "cluster",
    ]  # fmt: skip
    for back_end in found["back_ends"]:
        assert back_end["works"] == (back_end["lacks"] == [])
        assert all(lack["what"] and lack["mend"] for lack in back_end["lacks"])
    assert took_s < 2


def test_it_works_where_the_tests_run(capsys: pytest.CaptureFixture[str]) -> None:
    # `make test` sets up the guest first
    assert main(["doctor"]) == 0
    assert "auto takes guest:" in capsys.readouterr().out


def test_a_missing_kernel_is_mended_by_setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETSENSEML_CACHE", str(tmp_path))
    guest = doctor.diagnose()[0]
    assert Lack("the guest kernel", "make setup") in guest.lacks


def test_a_missing_program_is_mended_by_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("testbed.needs._SBIN", ())
    guest, _, host, _ = doctor.diagnose()
    mends = {lack.mend for lack in guest.lacks if lack.what.startswith(("mnexec", "tc", "ip "))}
    (mend,) = mends
    assert mend.startswith("apt-get install ")
    assert {"mininet", "iproute2"} <= set(mend.split())
    assert "mnexec (hosts)" in [lack.what for lack in host.lacks]


def test_too_little_memory_is_a_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "free_memory_gib", lambda: 0.1)
    lacks = doctor.diagnose()[0].lacks
    assert any("0.1 are free" in lack.what and "shm-size" in lack.mend for lack in lacks)


def test_the_host_s_shapers_are_tried_without_a_trace() -> None:
    def links() -> str:
        return subprocess.run(["ip", "-br", "link"], capture_output=True, text=True).stdout

    before = links()
    found = probes.qdiscs()
    if found is None:
        pytest.skip("no user namespaces for an ordinary user here")
    assert set(found) == {"htb", "tbf", "netem", "red", "fq_codel"}
    assert links() == before


def test_a_kernel_without_netem_refuses_delay_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    there = dict.fromkeys(("htb", "tbf", "red", "fq_codel"), True) | {"netem": False}
    monkeypatch.setattr(probes, "qdiscs", lambda: there)
    host = doctor.diagnose()[2]
    assert any("delay_ms" in note and "refused" in note for note in host.notes)
    there["netem"] = True
    assert doctor.diagnose()[2].notes == ()


def test_mininet_on_the_host_asks_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Lack("root", "run as root") in doctor.diagnose()[2].lacks


@pytest.mark.parametrize("arguments", [["doctr"], [], ["doctor", "--jsn"]])
def test_mistakes_are_one_line_and_exit_1(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 1
    assert capsys.readouterr().err.count("\n") == 1
