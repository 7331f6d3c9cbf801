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
    pub(in crate::codec) struct Deflater(flate2::Compress);

    #[cfg(not(feature = "libdeflate"))]
    impl Deflater {
        pub(in crate::codec) fn new(level: u8) -> Deflater {
            let level = flate2::Compression::new(u32::from(level.min(9)));
            Deflater(flate2::Compress::new(level, false))
        }

        /// Compresses into `dst`; `None` where it does not fit.
        pub(in crate::codec) fn deflate(&mut self, record: &[u8], dst: &mut [u8]) -> Option<usize> {
            self.0.reset();
            let status = self.0.compress(record, dst, flate2::FlushCompress::Finish).ok()?;
            (status == Status::StreamEnd).then(|| usize::try_from(self.0.total_out()).ok())?
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
