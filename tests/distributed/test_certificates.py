"""mTLS with real certificates, by openssl: the right ones work, the wrong ones are refused."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from gtjax.core.errors import UserError
from gtjax.distributed.authority import AUTHORITY, AUTHORITY_KEY, make_certificates
from gtjax.distributed.certificates import Certificates
from gtjax.distributed.place import Place
from gtjax.distributed.roll_call import answer
from gtjax.distributed.supervisor import free_port
from tests.distributed.test_roll_call import soon, together

__all__ = ["soon"]
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
HOST, OTHER = "127.0.0.1", "trainer-1"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An authority with certificates for two hosts, and another authority with its own."""
    folder, foreign = tmp_path_factory.mktemp("own"), tmp_path_factory.mktemp("foreign")
    make_certificates(folder, (HOST,), 30)
    make_certificates(folder, (OTHER,), 30)  # by the authority that is there
    make_certificates(foreign, (HOST, OTHER), 30)
    return folder, foreign


def files(folder, host=HOST, **other):
    known = {"cert": folder / f"{host}.pem", "key": folder / f"{host}-key.pem"}
    return Certificates.of(**{**known, "ca": folder / AUTHORITY, **other})


def met(first, second, seconds=1.5):
    """How the roll call ends for a first process and a second one with these files."""
    port = free_port()

    def come(index, own):
        place = Place(f"{HOST}:{port}", index, 2, "--coordinator")
        secure = own and own.contexts(HOST if index == 0 else None)
        answer(place, seconds, secure=secure, local=True)

    return together(lambda: come(0, first), lambda: come(1, second))


def test_the_right_ones_work(made):
    assert met(files(made[0]), files(made[0], OTHER)) == [None, None]


def test_another_authority_is_refused_by_both(made):
    first, second = met(files(made[0]), files(made[1], OTHER))
    assert "certificate is refused: " in second
    assert "127.0.0.1 was refused: no mTLS" in first


def test_a_process_without_any_is_refused(made):
    first, second = met(files(made[0]), None)
    assert "process 1 of 2 did not come" in first
    assert second is not None


def test_a_certificate_that_its_authority_did_not_sign(made):
    with pytest.raises(UserError, match=r"is refused by --mtls-ca .*: (self-signed|unable to get)"):
        files(made[0], ca=made[1] / AUTHORITY).contexts(None)


def test_a_certificate_that_has_expired(made, tmp_path):
    request = tmp_path / "request"
    key = made[0] / f"{OTHER}-key.pem"
    openssl("req", "-new", "-key", key, "-subj", f"/CN={OTHER}", "-out", request)
    expired(made[0], request, tmp_path / "old.pem")
    with pytest.raises(UserError, match=r"certificate has expired"):
        files(made[0], OTHER, cert=tmp_path / "old.pem").contexts(None)


def test_a_key_that_is_missing(made, tmp_path):
    with pytest.raises(UserError, match=r"--mtls-key .*no such file. gtjax certificates"):
        files(made[0], key=tmp_path / "none")
    with pytest.raises(UserError, match=r"--mtls-key lacks"):
        files(made[0], key=None)


def test_a_key_of_another_certificate(made):
    with pytest.raises(UserError, match=r"-key.pem does not belong to --mtls-cert"):
        files(made[0], key=made[0] / f"{OTHER}-key.pem").contexts(None)


def test_the_name_of_another_host(made):
    """The first process finds that by itself; so do others, if it does not look."""
    with pytest.raises(UserError, match=r"mismatch, certificate is not valid for '127.0.0.1'"):
        files(made[0], OTHER).contexts(HOST)
    port = free_port()
    place = [Place(f"{HOST}:{port}", index, 2, "--coordinator") for index in range(2)]
    wrong = files(made[0], OTHER).contexts(None)
    first, second = together(
        lambda: answer(place[0], 1.0, secure=wrong, local=True),
        lambda: answer(place[1], 1.0, secure=wrong, local=True),
    )
    assert "certificate is refused: IP address mismatch" in second
    assert first is not None


def test_what_is_no_certificate(made, tmp_path):
    (tmp_path / "text").write_text("text")
    with pytest.raises(UserError, match=r"--mtls-ca .*is no certificate"):
        files(made[0], ca=tmp_path / "text").contexts(None)
    with pytest.raises(UserError, match=r"cannot be read as PEM"):
        files(made[0], cert=tmp_path / "text").contexts(None)


def test_host_stands_for_the_name_of_the_host(made, monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", OTHER)
    assert files(made[0], "{host}") == files(made[0], OTHER)


def test_the_authority_is_kept_and_nothing_written_over(made):
    folder = made[0]
    assert oct(folder.stat().st_mode & 0o777) == "0o700"
    assert all(oct(path.stat().st_mode & 0o077) == "0o0" for path in folder.glob("*key.pem"))
    with pytest.raises(UserError, match=r"exists. Remove it"):
        make_certificates(folder, (HOST,), 30)
    with pytest.raises(UserError, match=r"found 'a/b'"):
        make_certificates(folder, ("a/b",), 30)
    assert sorted(path.suffix for path in folder.iterdir()) == [".pem"] * 6


def test_the_command(gtjax, tmp_path):
    code, out, _ = gtjax("certificates", tmp_path / "new", "--hosts", "a", "b")
    assert code == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        *(AUTHORITY, AUTHORITY_KEY),
        *("a.pem", "a-key.pem", "b.pem", "b-key.pem"),
    }
    assert "--mtls-cert HOST.pem" in out


def expired(folder, request, out):
    """A certificate that was valid for a day, long ago."""
    database = out.parent / "index"
    database.write_text("")
    config = out.parent / "config"
    config.write_text(
        f"[ca]\ndefault_ca=x\n[x]\ndatabase={database}\nnew_certs_dir={out.parent}\n"
        "rand_serial=yes\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
    )
    dates = ("-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
    signed = ("-cert", folder / AUTHORITY, "-keyfile", folder / AUTHORITY_KEY)
    openssl(
        "ca", "-batch", "-notext", "-config", config, *signed, *dates, "-in", request, "-out", out
    )


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
