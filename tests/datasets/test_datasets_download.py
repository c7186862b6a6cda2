"""Downloads against a server of our own on this machine."""

import errno
import hashlib
import os
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from dataset_forms import FORMS, adult_uci, bank_nested, german_uci, purchase_tgz, sst2_glue, sst2_hub

from dosimeter import InputError
from dosimeter.datasets import _fetch, load, loading
from dosimeter.datasets.catalogue import CATALOGUE


class Server:
    """Gives the bodies put into `files` by path; `faults` says what goes wrong with a path."""

    def __init__(self):
        outer = self
        self.files, self.faults, self.asked = {}, {}, []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                fault, body = outer.faults.get(self.path), outer.files.get(self.path)
                if fault == "redirect":
                    self.send_response(302)
                    self.send_header("Location", body)
                    self.end_headers()
                    return
                self.send_response(404 if body is None else 500 if fault == "error" else 200)
                if fault != "no length":
                    self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if fault == "slow":
                    time.sleep(1.0)
                self.wfile.write((body or b"")[: len(body or b"") // 2 if fault == "cut" else None])

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made = Server()
    yield made
    made.close()


def publish(server, monkeypatch, made, *, sha256=True, records=None, fingerprint=None):
    """Put a form's files on the server, and its addresses and checksums into the catalogue."""
    entry = CATALOGUE[made.name]
    for name, data in made.files.items():
        server.files[f"/{made.name}/{name}"] = data
    forms = []
    for form in entry.forms:
        if [file.name for file in form.files] != list(made.files):
            forms.append(replace(form, files=tuple(replace(file, urls=()) for file in form.files)))
            continue
        files = tuple(
            replace(
                file,
                urls=(f"{server.url}/{made.name}/{file.name}",),
                sha256=hashlib.sha256(made.files[file.name]).hexdigest() if sha256 else None,
            )
            for file in form.files
        )
        forms.append(replace(form, files=files, records=records or len(made.X), fingerprint=fingerprint))
    monkeypatch.setitem(CATALOGUE, made.name, replace(entry, forms=tuple(forms)))


def cached(name):
    folder = loading.cache_folder() / name
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def form_files(made):
    return next(form.files for form in CATALOGUE[made.name].forms if [f.name for f in form.files] == list(made.files))


ONLINE = [form for form in FORMS if all(file.urls for file in form_files(form(np.random.default_rng(0))))]


@pytest.mark.parametrize("form", ONLINE, ids=lambda form: form.__name__)
def test_every_form_that_is_online(form, server, monkeypatch, capfd):
    made = form(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    found = load(made.name)
    if found.y is not None:
        np.testing.assert_array_equal(found.y, made.y)
    assert cached(made.name) == sorted(made.files)
    assert len(server.asked) == len(made.files)
    said = capfd.readouterr()
    assert said.out == "" and said.err.count("Downloading http://127.0.0.1") == len(made.files)
    assert load(made.name, download=False).fingerprint == found.fingerprint
    assert len(server.asked) == len(made.files)


def test_every_set_has_a_form_that_is_online():
    for name, entry in CATALOGUE.items():
        online = [form for form in entry.forms if all(file.urls for file in form.files)]
        assert online, name
        for file in (file for form in online for file in form.files):
            assert all(url.startswith("http") for url in file.urls)
            assert file.sha256 is None or (len(file.sha256) == 64 and int(file.sha256, 16))


def test_wrong_checksum_keeps_nothing(server, monkeypatch):
    made = adult_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    server.files["/adult/adult.data"] = b"<html>please log in</html>"
    with pytest.raises(InputError, match=r"adult/adult\.data: wrong checksum"):
        load("adult")
    assert cached("adult") == []


def test_trust_on_first_use(server, monkeypatch):
    made = purchase_tgz(np.random.default_rng(0))
    publish(server, monkeypatch, made, sha256=False)
    load("purchase100")
    assert cached("purchase100") == ["dataset_purchase.tgz", "dataset_purchase.tgz.sha256"]
    path = loading.cache_folder() / "purchase100" / "dataset_purchase.tgz"
    digest = hashlib.sha256(made.files["dataset_purchase.tgz"]).hexdigest()
    assert _fetch.first_seen(path) == digest
    path.with_name(f"{path.name}.sha256").write_text(f"{digest.upper()}  {path.name}\n")  # as sha256sum writes it
    load("purchase100")
    path.write_bytes(purchase_tgz(np.random.default_rng(1)).files["dataset_purchase.tgz"])
    with pytest.raises(
        InputError, match=f"dataset_purchase.tgz has the wrong checksum.*first download it was {digest}"
    ):
        load("purchase100")
    assert len(load("purchase100", verify=False)) == len(made.X)


def test_known_checksum_holds_for_files_put_there_by_hand(server, monkeypatch, tmp_path):
    made = adult_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    folder = made.write(tmp_path)
    load("adult", folder=folder)
    (folder / "adult.test").write_bytes(made.files["adult.test"].replace(b">50K", b"<=50K"))
    with pytest.raises(InputError, match=r"adult\.test has the wrong checksum"):
        load("adult", folder=folder)
    assert server.asked == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [("error", "HTTP status 500"), ("cut", "ended after|IncompleteRead"), ("slow", "no answer within 0.3 s")],
)
def test_faults_on_the_way(server, monkeypatch, fault, words):
    made = german_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    monkeypatch.setattr(_fetch, "TIMEOUT", 0.3)
    server.faults["/german_credit/german.data"] = fault
    with pytest.raises(InputError, match=words) as caught:
        load("german_credit")
    assert "DOSIMETER_DATA" in str(caught.value) and "german_credit.csv.gz or german.data" in str(caught.value)
    assert cached("german_credit") == []
    del server.faults["/german_credit/german.data"]
    assert len(load("german_credit")) == len(made.X)


def test_nobody_there():
    entry = CATALOGUE["purchase100"]
    forms = [
        replace(f, files=tuple(replace(x, urls=x.urls and ("http://127.0.0.1:9/x",)) for x in f.files))
        for f in entry.forms
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CATALOGUE, "purchase100", replace(entry, forms=tuple(forms)))
        with pytest.raises(InputError) as caught:
            load("purchase100")
    message = str(caught.value)
    for part in (
        "could not be downloaded",
        "127.0.0.1:9",
        "privacytrustlab/datasets",
        "dataset_purchase.tgz",
        "DOSIMETER_DATA",
    ):
        assert part in message
    assert "\n" not in message
    assert caught.value.__cause__ is None


def test_the_next_mirror(server, monkeypatch):
    made = german_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    entry = CATALOGUE["german_credit"]
    form = entry.forms[1]
    file = replace(form.files[0], urls=(f"{server.url}/gone", f"{server.url}/wrong", *form.files[0].urls))
    server.files["/wrong"] = b"other"
    monkeypatch.setitem(
        CATALOGUE, "german_credit", replace(entry, forms=(entry.forms[0], replace(form, files=(file,))))
    )
    assert len(load("german_credit")) == len(made.X)
    assert server.asked == ["/gone", "/wrong", "/german_credit/german.data"]


def test_the_next_form(server, monkeypatch):
    first, second = sst2_glue(np.random.default_rng(0)), sst2_hub(np.random.default_rng(0))
    publish(server, monkeypatch, first)
    glue = CATALOGUE["sst2"].forms[1]
    publish(server, monkeypatch, second)
    hub = CATALOGUE["sst2"].forms[2]
    monkeypatch.setitem(CATALOGUE, "sst2", replace(CATALOGUE["sst2"], forms=(glue, hub)))
    del server.files["/sst2/SST-2.zip"]
    assert load("sst2").X.tolist() == second.X
    assert cached("sst2") == sorted(second.files)


def test_a_half_fetched_set_is_completed(server, monkeypatch):
    made = adult_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    body = server.files.pop("/adult/adult.test")
    with pytest.raises(InputError, match="HTTP status 404"):
        load("adult")
    assert cached("adult") == ["adult.data"]
    server.files["/adult/adult.test"] = body
    assert len(load("adult")) == len(made.X)
    assert server.asked.count("/adult/adult.data") == 1


@pytest.mark.parametrize("fault", [None, "no length"])
def test_too_long(server, monkeypatch, fault):
    made = bank_nested(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    server.faults["/bank_marketing/bank+marketing.zip"] = fault
    entry = CATALOGUE["bank_marketing"]
    form = entry.forms[2]
    short = replace(form, files=(replace(form.files[0], limit=100),))
    monkeypatch.setitem(CATALOGUE, "bank_marketing", replace(entry, forms=(short,)))
    with pytest.raises(InputError, match="longer than the 100 bytes"):
        load("bank_marketing")
    assert cached("bank_marketing") == []


def test_without_a_stated_length_and_through_a_redirect(server, monkeypatch):
    made = german_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    server.files["/other"] = server.files["/german_credit/german.data"]
    server.files["/german_credit/german.data"] = f"{server.url}/other"
    server.faults = {"/german_credit/german.data": "redirect", "/other": "no length"}
    assert len(load("german_credit")) == len(made.X)


def test_no_redirect_to_a_local_file(server, monkeypatch, tmp_path):
    made = german_uci(np.random.default_rng(0))
    secret = tmp_path / "secret"
    secret.write_bytes(made.files["german.data"])
    publish(server, monkeypatch, made)
    server.files["/german_credit/german.data"] = secret.as_uri()
    server.faults["/german_credit/german.data"] = "redirect"
    with pytest.raises(InputError, match="could not be downloaded"):
        load("german_credit")


def test_a_full_disk(server, monkeypatch):
    made = german_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"german\.data cannot be written \(No space left on device\)"):
            load("german_credit")
    assert cached("german_credit") == []
    assert len(load("german_credit")) == len(made.X)


def test_a_cache_that_cannot_be_made(server, monkeypatch, tmp_path):
    made = german_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match="cannot be written"):
        load("german_credit")


def test_interrupted(server, monkeypatch):
    made = german_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            load("german_credit")
    assert cached("german_credit") == []


def test_many_at_once(server, monkeypatch):
    made = german_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    found, threads = [], []
    for _ in range(6):
        threads.append(threading.Thread(target=lambda: found.append(load("german_credit").fingerprint)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and len(set(found)) == 1
    assert cached("german_credit") == ["german.data"]


def test_a_bar_on_a_terminal(server, monkeypatch, capfd):
    made = german_uci(np.random.default_rng(0))
    publish(server, monkeypatch, made)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert len(load("german_credit")) == len(made.X)
    assert "Downloading" not in capfd.readouterr().err
