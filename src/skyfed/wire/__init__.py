"""What vehicles send: quantised or raw gradients as bytes."""

from skyfed.wire.buckets import bucket_starts as bucket_starts
from skyfed.wire.codec import decode as decode
from skyfed.wire.codec import encode as encode
from skyfed.wire.codec import entries as entries
from skyfed.wire.codec import read_header as read_header
from skyfed.wire.downlink import decode_content as decode_content
from skyfed.wire.downlink import decode_model as decode_model
from skyfed.wire.downlink import digest_of as digest_of
from skyfed.wire.downlink import encode_content as encode_content
from skyfed.wire.downlink import encode_model as encode_model
from skyfed.wire.floats import accumulated as accumulated
from skyfed.wire.message import MODEL as MODEL
from skyfed.wire.message import Message as Message
from skyfed.wire.message import check_sizes as check_sizes
from skyfed.wire.message import decode_parts as decode_parts
from skyfed.wire.message import encode_parts as encode_parts
from skyfed.wire.message import has_raw as has_raw
from skyfed.wire.message import paper_bits as paper_bits
from skyfed.wire.quantise import QUANTISERS as QUANTISERS
from skyfed.wire.quantise import QuantiseSettings as QuantiseSettings
from skyfed.wire.quantise import quantiser as quantiser
from skyfed.wire.reader import DecodeError as DecodeError
from skyfed.wire.reference_model import Channels as Channels
from skyfed.wire.reference_model import Expected as Expected
from skyfed.wire.reference_model import Reference as Reference
