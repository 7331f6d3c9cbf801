//! Dense records: their NumPy dtype and shape, in schema.json and in .npy headers. Knows no mount.

mod npy;
mod schema;

pub use npy::NpyFile;
pub use schema::Schema;
