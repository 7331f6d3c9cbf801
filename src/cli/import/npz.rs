//! `.npz` files, which are zip archives of arrays: `a.npz:x` is the array x of a.npz.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use zip::ZipArchive;
use zip::read::ZipFile;
use zip::result::ZipError;
use zrfs::dataset::NpyFile;
use zrfs::storage::open_regular;
use zrfs::{Codec, Error, ErrorKind, Result};

/// Bytes that are read at once.
const BUFFER: usize = 1 << 20;
/// How many arrays a message lists.
const LISTED: usize = 20;

/// An archive of arrays.
type Npz = ZipArchive<BufReader<File>>;

/// An array of an archive, not read yet.
pub(super) type Member<'a> = ZipFile<'a, BufReader<File>>;

/// What a source names: a .npz file, and an array of it.
pub(super) fn named(source: &Path) -> Option<(PathBuf, Option<Vec<u8>>)> {
    let bytes = source.as_os_str().as_bytes();
    let is_npz = |bytes: &[u8]| bytes.len() > 4 && bytes.to_ascii_lowercase().ends_with(b".npz");
    // A file of that very name wins.
    if is_npz(bytes) && (source.exists() || !bytes.contains(&b':')) {
        return Some((source.to_path_buf(), None));
    }
    if source.exists() {
        return None;
    }
    let colons = bytes.iter().enumerate().filter(|&(_, &b)| b == b':').map(|(at, _)| at);
    let cuts = colons.filter_map(|at| Some((bytes.get(..at)?, bytes.get(at + 1..)?)));
    let mut cuts = cuts
        .filter(|(file, _)| is_npz(file))
        .map(|(file, array)| (Path::new(OsStr::from_bytes(file)), array));
    let first = cuts.next()?;
    let (file, array) =
        if first.0.exists() { first } else { cuts.find(|(file, _)| file.exists()).unwrap_or(first) };
    Some((file.to_path_buf(), Some(array.to_vec())))
}

/// Opens an archive of arrays.
pub(super) fn open(path: &Path) -> Result<Npz> {
    let place = path.display();
    let file = open_regular(path).map_err(|e| Error::io(format!("can't open {place}"), e))?;
    ZipArchive::new(BufReader::with_capacity(BUFFER, file)).map_err(|e| of_zip(&place.to_string(), e))
}

/// The array `name` of the archive at `path`. NumPy has it in a member of that name with .npy behind it.
///
/// # Errors
/// As for [`NpyFile::read`]; [`ErrorKind::NotFound`] with the names of those that are there.
pub(super) fn array<'a>(
    npz: &'a mut Npz,
    path: &Path,
    name: &[u8],
    codec: Codec,
) -> Result<NpyFile<Member<'a>>> {
    let place = format!("{}:{}", path.display(), String::from_utf8_lossy(name));
    let member = npz.index_for_name_raw(&[name, b".npy"].concat()).or_else(|| npz.index_for_name_raw(name));
    let Some(member) = member else {
        let text = format!("there is no array {} in {}", String::from_utf8_lossy(name), path.display());
        return Err(Error::new(ErrorKind::NotFound, text).with_help(format!("it has {}", listed(npz, codec))));
    };
    array_at(npz, member, place, codec)
}

/// Reads a member to its end: what follows the array's last byte, and with it the checksum.
pub(super) fn finish(mut rest: Member<'_>, path: &Path) -> Result<()> {
    io::copy(&mut rest, &mut io::sink()).map(drop).map_err(|e| {
        let name = String::from_utf8_lossy(rest.name_raw());
        let text = format!("{} is damaged: {name} can't be unpacked: {e}", path.display());
        Error::new(ErrorKind::Damaged, text)
    })
}

/// The error for an archive of which no array was picked.
pub(super) fn pick_one(path: &Path, codec: Codec) -> Error {
    let mut npz = match open(path) {
        Ok(npz) => npz,
        Err(e) => return e,
    };
    let place = path.display();
    let text = format!("{place} is an archive of arrays: {}", listed(&mut npz, codec));
    let first = npz.file_names_raw().next().map(key).unwrap_or_default();
    let help = format!("pick one: {place}:{}", String::from_utf8_lossy(first));
    Error::new(ErrorKind::Unsupported, text).with_help(help)
}

fn array_at(npz: &mut Npz, member: usize, place: String, codec: Codec) -> Result<NpyFile<Member<'_>>> {
    let member = npz.by_index(member).map_err(|e| of_zip(&place, e))?;
    let len = member.size();
    NpyFile::read(member, len, place, codec)
}

/// The arrays with what they are.
fn listed(npz: &mut Npz, codec: Codec) -> String {
    let mut arrays = Vec::new();
    for member in 0..npz.len().min(LISTED) {
        let name = npz.file_names_raw().nth(member).map(key).unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        arrays.push(match array_at(npz, member, name.clone(), codec) {
            Ok(array) => {
                let shape: Vec<_> =
                    [array.records()].iter().chain(array.schema().shape()).map(u64::to_string).collect();
                format!("{name} ({} [{}])", array.schema().dtype(), shape.join(", "))
            }
            Err(e) => {
                format!("{name} (no source: {})", e.to_string().trim_start_matches(&format!("{name}: ")))
            }
        });
    }
    match npz.len() {
        0 => "no array".to_owned(),
        n if n > LISTED => format!("{}, and {} more", arrays.join(", "), n - LISTED),
        _ => arrays.join(", "),
    }
}

/// The name that NumPy knows a member by.
fn key(member: &[u8]) -> &[u8] {
    member.strip_suffix(b".npy").unwrap_or(member)
}

fn of_zip(place: &str, e: ZipError) -> Error {
    match e {
        ZipError::Io(e) if e.raw_os_error().is_some() => Error::io(format!("can't read {place}"), e),
        ZipError::UnsupportedArchive(why) => {
            let help = "save it with numpy.savez or savez_compressed";
            Error::new(ErrorKind::Unsupported, format!("{place} can't be read: {why}")).with_help(help)
        }
        e => Error::new(ErrorKind::Damaged, format!("{place} is damaged, or no .npz file: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use zip::write::{SimpleFileOptions, ZipWriter};
    use zrfs::Schema;

    /// An archive of the arrays `x`, of shape (3, 2), and `y`, whose member is as given.
    fn npz(path: &Path, method: zip::CompressionMethod, y: &[u8]) {
        let mut x = Schema::new("|u1", &[3, 2], Codec::Raw).unwrap().npy_header();
        x.extend(1..=6);
        let mut zip = ZipWriter::new(File::create(path).unwrap());
        let options = SimpleFileOptions::default().compression_method(method);
        for (name, bytes) in [("x.npy", &x[..]), ("y.npy", y)] {
            zip.start_file(name, options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
    }

    fn read(path: &Path, name: &[u8]) -> Result<Vec<u8>> {
        let mut npz = open(path)?;
        let array = array(&mut npz, path, name, Codec::Raw)?;
        let schema = array.schema().clone();
        let mut records = array.into_records(&schema)?;
        let mut bytes = Vec::new();
        records.read_to_end(&mut bytes).map_err(|e| Error::io("can't read", e))?;
        finish(records.into_inner(), path)?;
        Ok(bytes)
    }

    #[test]
    fn arrays_are_read_by_name_stored_and_deflated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
            npz(&path, method, b"no array");
            assert_eq!(read(&path, b"x").unwrap(), [1, 2, 3, 4, 5, 6]);
            assert_eq!(read(&path, b"x.npy").unwrap().len(), 6);
            let text = read(&path, b"z").unwrap_err().to_string();
            assert!(text.contains("no array z") && text.contains("x (|u1 [3, 2])"), "{text}");
            assert!(read(&path, b"y").unwrap_err().to_string().contains("not a .npy file"));
            let text = pick_one(&path, Codec::Raw).to_string();
            assert!(text.contains("x (|u1 [3, 2]), y (no source: not a .npy file"), "{text}");
            assert!(text.contains(&format!("{}:x", path.display())), "{text}");
        }
    }

    #[test]
    fn any_damage_is_an_error_and_no_other_array() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        npz(&path, zip::CompressionMethod::Stored, b"y");
        let whole = std::fs::read(&path).unwrap();
        for cut in (0..whole.len()).step_by(7) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(read(&path, b"x").is_err(), "{cut}");
        }
        for bit in (0..whole.len() * 8).step_by(13) {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bytes).unwrap();
            if let Ok(read) = read(&path, b"x") {
                assert_eq!(read, [1, 2, 3, 4, 5, 6], "bit {bit}");
            }
        }
    }

    #[test]
    fn the_first_colon_behind_an_archive_ends_its_name_unless_a_file_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let of = |name: &str| {
            named(&at(name)).map(|(path, array)| (path, array.map(|a| String::from_utf8(a).unwrap())))
        };
        let some = |file: &str, array: &str| Some((at(file), Some(array.to_owned())));
        assert_eq!(of("a.npz:x"), some("a.npz", "x"));
        assert_eq!(of("a.npz:x:y"), some("a.npz", "x:y"));
        assert_eq!(of("a.npz"), Some((at("a.npz"), None)));
        assert_eq!((of("a.npy"), of("a:b"), of("npz:x")), (None, None, None));
        for file in ["b.npz:x.npz", "c.npz:x.npy"] {
            std::fs::write(at(file), "").unwrap();
        }
        assert_eq!(of("b.npz:x.npz"), Some((at("b.npz:x.npz"), None)));
        assert_eq!(of("b.npz:x.npz:y"), some("b.npz:x.npz", "y"));
        assert_eq!(of("c.npz:x.npy"), None);
    }
}
