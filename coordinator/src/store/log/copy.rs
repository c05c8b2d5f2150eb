//! Rows in the binary form of COPY (PostgreSQL's manual, "COPY", binary format): a third of what an insert from arrays
//! costs the server, because nothing is parsed, joined or checked twice.

use std::net::IpAddr;

use time::OffsetDateTime;
use uuid::Uuid;

/// What every binary COPY begins with: signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// In place of the count of columns: no row follows.
const TRAILER: i16 = -1;

/// Length of a null.
const NULL: i32 = -1;

/// Address families as the server's `inet` has them (`utils/inet.h`).
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 3;

/// Object id of `inet`, the type of an array's elements (`pg_type.dat`).
const INET_OID: i32 = 869;

/// The first byte of a `jsonb` on the wire.
const JSONB_VERSION: u8 = 1;

/// Microseconds from 1970 to the server's epoch, 2000-01-01.
const EPOCH_US: i128 = 946_684_800_000_000;

/// Rows on their way to the server.
pub(super) struct CopyRows {
    bytes: Vec<u8>,
    columns: i16,
}

impl CopyRows {
    /// None yet, of so many columns; room for so many rows.
    pub(super) fn new(columns: i16, rows: usize) -> Self {
        // Most rows take 300 to 500 bytes.
        let mut bytes = Vec::with_capacity(HEADER.len() + rows * 512);
        bytes.extend_from_slice(HEADER);
        Self { bytes, columns }
    }

    /// Begins a row; each of its columns follows in order.
    pub(super) fn row(&mut self) -> Row<'_> {
        self.bytes.extend_from_slice(&self.columns.to_be_bytes());
        Row(&mut self.bytes)
    }

    /// All of them, as the server takes them.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&TRAILER.to_be_bytes());
        self.bytes
    }
}

/// One row being written.
pub(super) struct Row<'a>(&'a mut Vec<u8>);

impl Row<'_> {
    pub(super) fn put(&mut self, value: &impl Field) -> &mut Self {
        // The length is known when the value is written.
        let start = self.0.len();
        self.0.extend_from_slice(&NULL.to_be_bytes());
        if value.write(self.0) {
            let length = self.0.len() - start - size_of::<i32>();
            let length = i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes();
            if let Some(place) = self.0.get_mut(start..start + length.len()) {
                place.copy_from_slice(&length);
            }
        }
        self
    }
}

/// A value of one column.
pub(super) trait Field {
    /// Appends it. False: it is null.
    fn write(&self, bytes: &mut Vec<u8>) -> bool;
}

impl<T: Field> Field for Option<T> {
    fn write(&self, bytes: &mut Vec<u8>) -> bool {
        self.as_ref().is_some_and(|value| value.write(bytes))
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Field for $number {
            fn write(&self, bytes: &mut Vec<u8>) -> bool {
                bytes.extend_from_slice(&self.to_be_bytes());
                true
            }
        })*
    };
}

numbers!(i16, i32, i64);

impl Field for bool {
    fn write(&self, bytes: &mut Vec<u8>) -> bool {
        bytes.push(u8::from(*self));
        true
    }
}

impl Field for &str {
    fn write(&self, bytes: &mut Vec<u8>) -> bool {
        bytes.extend_from_slice(self.as_bytes());
        true
    }
}

impl Field for Uuid {
    fn write(&self, bytes: &mut Vec<u8>) -> bool {
        bytes.extend_from_slice(self.as_bytes());
        true
    }
}

impl Field for OffsetDateTime {
    fn write(&self, bytes: &mut Vec<u8>) -> bool {
        let us = self.unix_timestamp_nanos() / 1000 - EPOCH_US;
        i64::try_from(us).unwrap_or(i64::MAX).write(bytes)
    }
}

impl Field for IpAddr {
    fn write(&self, bytes: &mut Vec<u8>) -> bool {
        // Family, bits of the network, no cidr, and the address with its length.
        match self {
            Self::V4(v4) => {
                bytes.extend_from_slice(&[FAMILY_V4, 32, 0, 4]);
                bytes.extend_from_slice(&v4.octets());
            }
            Self::V6(v6) => {
                bytes.extend_from_slice(&[FAMILY_V6, 128, 0, 16]);
                bytes.extend_from_slice(&v6.octets());
            }
        }
        true
    }
}

impl Field for &[IpAddr] {
    fn write(&self, bytes: &mut Vec<u8>) -> bool {
        // Dimensions, whether any is null, the elements' type; for the one dimension its length and where it begins.
        let dimensions = i32::from(!self.is_empty());
        for head in [dimensions, 0, INET_OID] {
            head.write(bytes);
        }
        if dimensions > 0 {
            i32::try_from(self.len()).unwrap_or(i32::MAX).write(bytes);
            1_i32.write(bytes);
        }
        let mut elements = Row(bytes);
        for address in *self {
            elements.put(address);
        }
        true
    }
}

/// A `jsonb`, as its text.
pub(super) struct Json<'a>(pub(super) &'a serde_json::Value);

impl Field for Json<'_> {
    fn write(&self, bytes: &mut Vec<u8>) -> bool {
        bytes.push(JSONB_VERSION);
        // Only a key that is no text could fail; `Value` has none.
        serde_json::to_writer(bytes, self.0).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_count_and_its_values_with_their_lengths() {
        let mut rows = CopyRows::new(4, 1);
        rows.row().put(&7_i16).put(&None::<i64>).put(&"ab").put(&true);
        let bytes = rows.finish();
        let (header, row) = bytes.split_at(HEADER.len());
        assert_eq!(header, HEADER);
        assert_eq!(row, b"\0\x04\0\0\0\x02\0\x07\xff\xff\xff\xff\0\0\0\x02ab\0\0\0\x01\x01\xff\xff");
    }

    #[test]
    fn times_count_from_the_year_2000_and_empty_arrays_have_no_dimension() {
        let mut bytes = Vec::new();
        OffsetDateTime::from_unix_timestamp(946_684_801).unwrap().write(&mut bytes);
        assert_eq!(bytes, 1_000_000_i64.to_be_bytes());
        bytes.clear();
        let none: &[IpAddr] = &[];
        none.write(&mut bytes);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0x65]);
    }
}
