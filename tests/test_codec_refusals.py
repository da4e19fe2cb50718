"""Uploads that are damaged, not expected, or cannot be raise DecodeError and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from skyfed.types import Raw, Update
from skyfed.wire import Reference, decode, encode, encode_model, read_header
from skyfed.wire.quantise import QUANTISERS
from wire_cases import (
    BODIES,
    BODY,
    INF,
    MASK,
    NAN,
    NORMS,
    SCHEMES,
    every_body,
    every_mask,
    expected,
    forced,
    joined,
    model,
    plain_upload,
    range_upload,
    refused,
    sealed,
    split,
    tampered,
    there_and_back,
    upload,
    uploads,
)

# damage


@every_body
@every_mask
def test_a_message_cut_off_anywhere_is_refused(body, mask):
    reference = model(20)
    data = encode(forced(upload(reference, body, mask), mask), reference)
    for length in range(len(data)):
        refused(data[:length], reference, "")
        if length != len(data) - 8:  # which is the message
            refused(sealed(data[:length]), reference, "")


def test_less_than_a_header_is_truncated():
    refused(b"", model(20), "truncated: 0 bytes")
    refused(plain_upload()[0][:87], model(20), "truncated: 87 bytes")


@every_body
@every_mask
def test_a_message_with_any_byte_changed_is_refused(body, mask):
    reference = model(20)
    data = encode(forced(upload(reference, body, mask), mask), reference)
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            refused(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :], reference, "")


def test_a_wrong_checksum_is_refused():
    data, reference = plain_upload()
    refused(data[:-1] + bytes([data[-1] ^ 1]), reference, "checksum differs")
    refused(data[:90] + bytes([data[90] ^ 1]) + data[91:], reference, "checksum differs")


@every_body
@pytest.mark.parametrize("extra", [b"\0", b"junk", bytes(1000)])
def test_trailing_bytes_are_refused(body, extra):
    reference = model(20)
    data = encode(upload(reference, body, "guess"), reference)
    refused(data + extra, reference, "bytes, the header says")
    refused(sealed(data[:-8] + extra), reference, "bytes, the header says")
    refused(sealed(data + extra), reference, "bytes, the header says")


@pytest.mark.parametrize("section", ["mask", "body", "norms", "buffers"])
@pytest.mark.parametrize("off", [-1, 1, 1000])
def test_section_lengths_that_do_not_add_up_are_refused(section, off):
    data, reference = range_upload()
    head, sections = split(data)
    wrong = head._replace(**{f"{section}_bytes": getattr(head, f"{section}_bytes") + off})
    refused(sealed(uploads.HEAD.pack(*wrong) + b"".join(sections)), reference, "bytes, the header says")


@pytest.mark.parametrize(("longer", "shorter"), [(a, b) for a in range(4) for b in range(4) if a != b])
def test_sections_that_reach_into_each_other_are_refused(longer, shorter):
    for data, reference in (plain_upload(), range_upload()):
        head, sections = split(data)
        lengths = list(head.sections)
        lengths[longer] += 1
        lengths[shorter] -= 1
        wrong = uploads.Header(*head[:-4], *lengths)
        refused(sealed(uploads.HEAD.pack(*wrong) + b"".join(sections)), reference, "")


@pytest.mark.parametrize("section", range(4))
def test_sections_longer_than_they_can_be_are_refused(section):
    data, reference = plain_upload()
    refused(tampered(data, {section: bytes(10_000)}), reference, "a section is longer than it can be")


@pytest.mark.parametrize("section", [MASK, BODY, NORMS])
def test_bytes_after_a_range_coded_part_are_refused(section):
    data, reference = range_upload()
    content = split(data)[1][section]
    refused(tampered(data, {section: content + b"\0"}), reference, "1 bytes too many")
    refused(tampered(data, {section: content[:-1]}), reference, "truncated")


# what was not expected


@pytest.mark.parametrize("field", ["round", "vehicle"])
def test_an_upload_of_another_round_or_vehicle_is_refused(field):
    data, reference = plain_upload()
    awaited = getattr(expected(reference), field)
    refused(data, reference, f"{field} is {awaited}, expected {awaited + 1}", **{field: awaited + 1})
    refused(tampered(data, **{field: 2**32 - 1}), reference, f"{field} is 4294967295, expected {awaited}")


def test_an_upload_of_another_size_is_refused():
    data, reference = plain_upload()
    refused(data, model(21), "size is 20, expected 21")
    for size in (0, 19, 2**40, 2**64 - 1):
        refused(tampered(data, size=size), reference, f"size is {size}, expected 20")


def test_an_upload_made_from_another_model_is_refused():
    data, reference = plain_upload()
    refused(data, uploads.model(20, seed=1), "digest of the received model is")
    refused(tampered(data, digest=reference.digest ^ 1), reference, "digest of the received model is")


def test_another_kind_of_message_is_refused():
    data, reference = plain_upload()
    refused(tampered(data, magic=b"SKYX"), reference, "not an upload")
    refused(encode_model(7, model(64), None), reference, "not an upload")


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_another_version_is_refused(version):
    data, reference = plain_upload()
    refused(tampered(data, version=version), reference, f"an upload of version {version}; this is version 2")


def test_an_upload_trained_at_another_rate_is_refused():
    reference = model(20)
    data = encode(upload(reference, "exact"), reference)
    refused(data, reference, "learning rate is 0.05", rate=0.1)
    refused(tampered(data, rate=0.1), reference, "expected 0.05")
    assert decode(data, expected(reference, rate=None)).body.rate == np.float32(0.05)


@pytest.mark.parametrize("rate", [0.0, -0.0, -0.05, NAN, INF, -INF])
def test_learning_rates_that_cannot_be_are_refused(rate):
    reference = model(20)
    data = encode(upload(reference, "exact"), reference)
    refused(tampered(data, rate=rate), reference, "learning rate is", rate=None)


@pytest.mark.parametrize("rate", [-0.0, 0.05, -1.0, 1e-45, NAN, INF])
def test_a_learning_rate_that_nobody_needs_is_refused(rate):
    reference = model(20)
    for body in ("raw", *SCHEMES):
        refused(tampered(encode(upload(reference, body), reference), rate=rate), reference, "learning rate is")


@every_body
def test_d_longer_than_its_header_allows_is_refused(body):
    reference = model(65)
    data = encode(upload(reference, body, "guess"), reference)
    length = read_header(data).length
    assert decode(tampered(data, length=1.01 * length), expected(reference)).length == np.float32(1.01 * length)
    for less in (0.99 * length, 0.0):
        refused(tampered(data, length=less), reference, "d is longer than the")


@every_body
def test_a_header_that_allows_more_than_the_station_is_refused(body):
    reference = model(65)
    data = encode(upload(reference, body), reference)
    length = read_header(data).length
    refused(data, reference, "is accepted", longest=0.99 * length)
    refused(tampered(data, length=INF), reference, "d may be as long as inf, at most 1e+06 is accepted", longest=1e6)


@pytest.mark.parametrize("length", [NAN, -1.0, -INF, -1e-45])
def test_lengths_that_cannot_be_are_refused(length):
    data, reference = plain_upload()
    refused(tampered(data, length=length), reference, "d may be as long as")


# what cannot be


@pytest.mark.parametrize(
    "fields",
    [{"scheme": 4}, {"scheme": 255}, {"coder": 3}, {"coder": 255}, {"kept": 21}, {"kept": 2**64 - 1}, {"s": 0},
     {"s": 128}, {"s": 255}],
)  # fmt: skip
def test_headers_out_of_range_are_refused(fields):
    data, reference = plain_upload()
    refused(tampered(data, **fields), reference, "header out of range")


@pytest.mark.parametrize("bucket", [-(2**31), -2, *range(1, 8)])
def test_buckets_that_are_too_small_are_refused(bucket):
    reference = model(20)
    for body in BODIES:
        refused(tampered(encode(upload(reference, body), reference), bucket=bucket), reference, f"buckets of {bucket}")


@pytest.mark.parametrize("scheme", ["qsgd", "dither"])
@pytest.mark.parametrize("bucket", [8, 9, 15, 16, 2**31 - 1])
def test_buckets_of_eight_and_more_come_back(scheme, bucket):
    for size in (0, 1, 8, 9, 16, 17, 1000):
        about = uploads.Scheme(QUANTISERS[scheme], scheme, 3, bucket)
        for mask in (np.ones(size, bool), np.arange(size) % 3 > 0):
            body = uploads._body(model(size), about, mask)
            assert len(body.norms) == -(-int(mask.sum()) // bucket)
            there_and_back(replace(upload(model(size), scheme), mask=mask, body=body), model(size))


@pytest.mark.parametrize("form", [5, 6, 255])
def test_unknown_forms_of_masks_are_refused(form):
    data, reference = plain_upload()
    refused(tampered(data, mask_form=form), reference, f"a mask in form {form}")


@pytest.mark.parametrize("form", [3, 4, 255])
def test_unknown_forms_of_levels_are_refused(form):
    data, reference = plain_upload()
    refused(tampered(data, body_form=form), reference, f"levels in form {form}")


@pytest.mark.parametrize("form", [3, 4, 255])
def test_unknown_forms_of_values_norms_and_buffers_are_refused(form):
    data, reference = plain_upload()
    refused(tampered(data, norms_form=form), reference, f"norms in form {form}")
    refused(tampered(data, buffers_form=form), reference, f"floats in form {form}")
    refused(tampered(encode(upload(reference, "raw"), reference), body_form=form), reference, f"floats in form {form}")


def test_forms_that_need_something_are_refused_where_there_is_nothing():
    reference = model(0)
    head, sections = split(encode(upload(reference, "qsgd"), reference))
    refused(joined(head._replace(norms_form=1), sections), reference, "norms in form 1")
    bare = Reference(reference.weights, np.empty(0, np.float32), reference.starts)
    refused(tampered(encode(Update(7, 3, 0, None, Raw(np.empty(0, np.float32)), bare.buffers), bare), buffers_form=1),
            bare, "floats in form 1")  # fmt: skip


def test_an_empty_range_coded_part_is_read_for_every_scheme():
    """Nothing is kept, so that no level has a context; a sender would use bit planes."""
    reference = model(9)
    for scheme in ("qsgd", "qsgd all", "dither", "dither linf", "eden 1"):
        update = upload(reference, scheme)
        mask = np.zeros(9, bool)
        body = uploads._body(reference, uploads.SCHEMES[scheme], mask)
        data = encode(replace(update, mask=mask, body=body, forms=(2, 1, None, None)), reference)
        assert read_header(data).body_form == 1
        found = decode(data, expected(reference))
        assert found.kept == len(found.body.levels) == 0
        assert encode(found, reference) == data


def test_channels_that_nobody_knows_are_refused():
    reference = model(20)
    data = encode(forced(upload(reference, "qsgd", "channels"), "channels"), reference)
    bare = replace(reference, channels=None)
    assert bare.digest == reference.digest
    refused(data, bare, "a mask in form 4")


@pytest.mark.parametrize(
    "fields", [{"s": 1}, {"bucket": 8}, {"bucket": -1}, {"seed": 1}, {"norms_form": 1}, {"coder": 0}, {"coder": 2}]
)
def test_raw_uploads_with_what_only_levels_need_are_refused(fields):
    reference = model(20)
    for body in ("raw", "exact"):
        refused(
            tampered(encode(upload(reference, body), reference), **fields),
            reference,
            "a raw upload with what only levels",
        )


def test_norms_in_a_raw_upload_are_refused():
    reference = model(20)
    refused(
        tampered(encode(upload(reference, "raw"), reference), {NORMS: b"\x80\x3f"}),
        reference,
        "a raw upload with what only",
    )


def test_a_seed_in_a_qsgd_upload_is_refused():
    data, reference = plain_upload()
    refused(tampered(data, seed=1), reference, "a seed that nobody needs")


@pytest.mark.parametrize(
    "fields",
    [{"bucket": 0}, {"bucket": -1}, {"bucket": 32}, {"bucket": 63}, {"bucket": 65}, {"bucket": 96}, {"bucket": 131072},
     {"bucket": 2**31 - 1}, {"s": 3}, {"s": 5}, {"s": 127}],
)  # fmt: skip
def test_eden_with_blocks_or_levels_that_cannot_be_is_refused(fields):
    reference = model(65)
    for scheme in ("eden 1", "eden 2", "eden 4"):
        refused(
            tampered(encode(upload(reference, scheme), reference), **fields), reference, "blocks that cannot be rotated"
        )


@pytest.mark.parametrize("scheme", ["eden 2", "eden 4"])
def test_eden_with_a_level_of_0_where_none_can_be_is_refused(scheme):
    reference = model(65)
    update = upload(reference, scheme)
    levels = update.body.levels.copy()
    levels[-1] = 0
    update = replace(update, body=replace(update.body, levels=levels))
    for form in range(3):
        refused(
            encode(replace(update, forms=(0, form, None, None)), reference), reference, "a level is 0 where none can be"
        )
