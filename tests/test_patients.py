"""Keys in the place of patients' ids: the same with one salt, and nothing to be guessed without it."""

import hashlib
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from medimg_eval import patients
from medimg_eval.errors import UserError
from medimg_eval.patients import patient_key, salt_name, salt_of
from medimg_eval.system import user_cache


@pytest.fixture
def salt(tmp_path, monkeypatch):
    def use(text=None, name="salt"):
        place = tmp_path / name
        if text is not None:
            place.write_text(text)
        monkeypatch.setenv("MEDIMG_EVAL_SALT", str(place))
        return place

    return use


def test_one_salt_gives_one_key_and_another_salt_another(salt):
    salt("of one lab, long enough")
    first, name = patient_key("1234567"), salt_name()
    assert first == patient_key("1234567") != patient_key("1234568")
    assert salt_of(first) == name
    salt("of another lab, as long", "other")
    assert patient_key("1234567") != first
    assert salt_name() != name
    salt("  of one lab, long enough\n", "copy")  # however the file was copied
    assert patient_key("1234567") == first
    assert patient_key("") == ""
    assert [salt_of(key) for key in ("p1", hashlib.sha256(b"1234567").hexdigest()[:12], "")] == ["", "", ""]


def test_a_salt_is_made_at_first_use_for_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("MEDIMG_EVAL_SALT")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    key = patient_key("1234567")
    place = tmp_path / "config" / "medimg_eval" / "salt"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert [path.name for path in place.parent.iterdir()] == ["salt"]
    assert len(place.read_text().strip()) == 64
    patients._read_salt.cache_clear()  # as in another process
    assert patient_key("1234567") == key


def test_processes_that_begin_together_share_the_first_ones_salt(salt):
    place = salt()

    def begin(_):
        patients._write_salt(place)
        return place.read_text()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(begin, range(32)))) == 1


def test_a_salt_that_cannot_be_read_or_is_too_short_is_named(salt, tmp_path):
    salt("short")
    with pytest.raises(UserError, match=r"salt: a salt of patients' keys has at least 16 characters"):
        patient_key("1")
    (tmp_path / "file").touch()
    salt(name="file/salt")
    with pytest.raises(UserError, match=r"file/salt: .*cannot be read or made .*export MEDIMG_EVAL_SALT=FILE"):
        patient_key("1")


def test_a_user_without_a_home_is_told_which_places_to_name(monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_SALT", "~no-such-user/salt")
    with pytest.raises(UserError, match=r"home directory\. Name the file of the salt: export MEDIMG_EVAL_SALT=FILE"):
        patient_key("1")
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", "~no-such-user/cache")
    with pytest.raises(UserError, match=r"home directory\. Name a folder for the cache: export MEDIMG_EVAL_CACHE=DIR"):
        user_cache()
