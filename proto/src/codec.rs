//! Encoding of messages with small buffers. A stream lives for weeks and is quiet most of the time, and a coordinator holds
//! thousands of them: the 8 KiB that tonic sets aside for each direction of each are most of what a stream would cost.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// What a buffer for sending has at first; larger messages make it grow.
const SENT_BYTES: usize = 256;

/// What a buffer for receiving has at first: nothing, and then what the first message takes.
const RECEIVED_BYTES: usize = 0;

/// Messages that are ready together are sent together up to this size.
const YIELD_BYTES: usize = 16 << 10;

/// Protobuf by prost, with buffers for quiet streams.
#[derive(Debug, Clone)]
pub struct QuietCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for QuietCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for QuietCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(SENT_BYTES, YIELD_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(RECEIVED_BYTES, YIELD_BYTES))
    }
}
