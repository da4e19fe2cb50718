"""What vehicles send: quantised or raw gradients as bytes."""

from skyfed.wire.buckets import bucket_starts
from skyfed.wire.codec import decode, encode, entries, read_header
from skyfed.wire.downlink import decode_content, decode_model, digest_of, encode_content, encode_model
from skyfed.wire.floats import accumulated
from skyfed.wire.message import MODEL, Message, check_sizes, decode_parts, encode_parts, has_raw
from skyfed.wire.payload import paper_bits
from skyfed.wire.quantise import QUANTISERS, QuantiseSettings, quantiser
from skyfed.wire.reader import DecodeError
from skyfed.wire.reference_model import Channels, Expected, Reference

__all__ = [
    "MODEL",
    "QUANTISERS",
    "Channels",
    "DecodeError",
    "Expected",
    "Message",
    "QuantiseSettings",
    "Reference",
    "accumulated",
    "bucket_starts",
    "check_sizes",
    "decode",
    "decode_content",
    "decode_model",
    "decode_parts",
    "digest_of",
    "encode",
    "encode_content",
    "encode_model",
    "encode_parts",
    "entries",
    "has_raw",
    "paper_bits",
    "quantiser",
    "read_header",
]
