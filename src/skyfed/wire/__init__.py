"""What vehicles send: quantised or raw gradients as bytes."""

from skyfed.wire.buckets import bucket_starts
from skyfed.wire.codec import decode, encode, entries, read_header
from skyfed.wire.common import Channels, Common, Expected
from skyfed.wire.downlink import decode_model, encode_model
from skyfed.wire.floats import accumulated
from skyfed.wire.payload import corrected_bits, paper_bits
from skyfed.wire.quantise import QUANTISERS, QuantiseSettings, quantiser
from skyfed.wire.reader import DecodeError

__all__ = [
    "QUANTISERS",
    "Channels",
    "Common",
    "DecodeError",
    "Expected",
    "QuantiseSettings",
    "accumulated",
    "bucket_starts",
    "corrected_bits",
    "decode",
    "decode_model",
    "encode",
    "encode_model",
    "entries",
    "paper_bits",
    "quantiser",
    "read_header",
]
