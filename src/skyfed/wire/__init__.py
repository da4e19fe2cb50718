"""What vehicles send: quantised or raw gradients as bytes."""

from skyfed.wire.codec import DecodeError, Expected, decode, encode
from skyfed.wire.payload import corrected_bits, paper_bits
from skyfed.wire.quantise import QuantiseSettings, bucket_starts, dequantise, quantise, variance_bound

__all__ = [
    "DecodeError",
    "Expected",
    "QuantiseSettings",
    "bucket_starts",
    "corrected_bits",
    "decode",
    "dequantise",
    "encode",
    "paper_bits",
    "quantise",
    "variance_bound",
]
