"""Regular uploads: what fails is tried again, and the end waits for one that is under way."""

import threading

from syncline.runs.sending import RegularUploads


def test_an_upload_that_fails_is_followed_by_others() -> None:
    calls, enough = [], threading.Event()

    def upload() -> None:
        calls.append(None)
        if len(calls) == 3:
            enough.set()
        raise RuntimeError("a filesystem's own error")

    uploads = RegularUploads(upload, every_s=0.001)
    uploads.start()
    uploads.start()
    assert enough.wait(60)
    uploads.close()
    count = len(calls)
    assert not [thread for thread in threading.enumerate() if thread.name == "syncline-record"]
    assert len(calls) == count


def test_the_end_waits_for_what_is_under_way() -> None:
    begun, may_end, done = threading.Event(), threading.Event(), []

    def upload() -> None:
        begun.set()
        may_end.wait(60)
        done.append(None)

    uploads = RegularUploads(upload, every_s=0.001)
    uploads.start()
    begun.wait(60)
    threading.Timer(0.05, may_end.set).start()
    uploads.close()
    assert done


def test_what_was_never_started_ends() -> None:
    RegularUploads(lambda: None).close()
