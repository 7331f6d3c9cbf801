//! The two Deflate backends behind one pair of types.

#[cfg(feature = "libdeflate")]
pub(super) use native::{Deflater, Inflater};
#[cfg(not(feature = "libdeflate"))]
pub(super) use pure::{Deflater, Inflater};

#[cfg(feature = "libdeflate")]
mod native {
    use libdeflater::{CompressionLvl, Compressor, Decompressor};

    pub(in crate::codec) struct Deflater(Compressor);

    impl Deflater {
        pub(in crate::codec) fn new(level: u8) -> Deflater {
            Deflater(Compressor::new(CompressionLvl::new(i32::from(level)).unwrap_or_default()))
        }

        /// Compresses into `dst`; `None` where it does not fit.
        pub(in crate::codec) fn deflate(&mut self, record: &[u8], dst: &mut [u8]) -> Option<usize> {
            self.0.deflate_compress(record, dst).ok()
        }
    }

    pub(in crate::codec) struct Inflater(Decompressor);

    impl Inflater {
        pub(in crate::codec) fn new() -> Inflater {
            Inflater(Decompressor::new())
        }

        pub(in crate::codec) fn inflate(&mut self, stored: &[u8], dst: &mut [u8]) -> bool {
            self.0.deflate_decompress(stored, dst).is_ok_and(|n| n == dst.len())
        }
    }
}

#[cfg(any(test, not(feature = "libdeflate")))]
pub(super) mod pure {
    use flate2::{Decompress, FlushDecompress, Status};

    #[cfg(not(feature = "libdeflate"))]
    pub(in crate::codec) struct Deflater {
        codec: flate2::Compress,
        /// Room for a record that grows: zlib-rs 0.6 panics where its output is full in the middle of a stored block.
        scratch: Vec<u8>,
    }

    #[cfg(not(feature = "libdeflate"))]
    impl Deflater {
        pub(in crate::codec) fn new(level: u8) -> Deflater {
            let level = flate2::Compression::new(u32::from(level.min(9)));
            Deflater { codec: flate2::Compress::new(level, false), scratch: Vec::new() }
        }

        /// Compresses into `dst`; `None` where it does not fit.
        pub(in crate::codec) fn deflate(&mut self, record: &[u8], dst: &mut [u8]) -> Option<usize> {
            self.codec.reset();
            self.scratch.resize(record.len() + record.len() / 8 + 64, 0);
            let status =
                self.codec.compress(record, &mut self.scratch, flate2::FlushCompress::Finish).ok()?;
            let packed = self.scratch.get(..usize::try_from(self.codec.total_out()).ok()?)?;
            let dst = dst.get_mut(..packed.len()).filter(|_| status == Status::StreamEnd)?;
            dst.copy_from_slice(packed);
            Some(packed.len())
        }
    }

    pub(in crate::codec) struct Inflater(Decompress);

    impl Inflater {
        pub(in crate::codec) fn new() -> Inflater {
            Inflater(Decompress::new(false))
        }

        pub(in crate::codec) fn inflate(&mut self, stored: &[u8], dst: &mut [u8]) -> bool {
            self.0.reset(false);
            let Ok(mut status) = self.0.decompress(stored, dst, FlushDecompress::Finish) else {
                return false;
            };
            // A full destination stops the decoder before it has seen the end mark: one more call looks at it.
            if status != Status::StreamEnd && self.0.total_out() == dst.len() as u64 {
                let rest = usize::try_from(self.0.total_in()).ok().and_then(|n| stored.get(n..));
                match self.0.decompress(rest.unwrap_or_default(), &mut [0; 1], FlushDecompress::Finish) {
                    Ok(next) => status = next,
                    Err(_) => return false,
                }
            }
            status == Status::StreamEnd && self.0.total_out() == dst.len() as u64
        }
    }
}
