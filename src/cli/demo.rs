//! `demo`: shows in a few seconds what zrfs does, with nothing but the program.

use std::fs;
use std::path::Path;

use image::{Rgb, RgbImage};
use zrfs::dataset::Schema;
use zrfs::fuse::MountOptions;
use zrfs::{Codec, Error, Result, Store, Version};

use super::output::Output;
use super::signals::Stop;
use super::{Outcome, import, mount};

/// Classes of the folder of pictures, and pictures in each.
const CLASSES: [&str; 3] = ["circles", "squares", "stripes"];
const PICTURES: u32 = 20;
/// Records of the dense store, each a float32 array of this shape.
const SAMPLES: usize = 1000;
const SHAPE: [u64; 2] = [16, 16];
const SAMPLE_LEN: usize = 16 * 16;

/// `zrfs demo`
pub(super) fn run() -> Outcome {
    let stop = Stop::on_signals()?;
    let folder = tempfile::Builder::new()
        .prefix("zrfs-demo-")
        .tempdir()
        .map_err(|e| Error::io("can't make a folder for the demo", e))?;
    let at = |name: &str| folder.path().join(name);
    let mountpoint = at("mnt");
    fs::create_dir(&mountpoint)
        .map_err(|e| Error::io(format!("can't create {}", mountpoint.display()), e))?;

    say("1. A folder of 60 little pictures, packed into one store:")?;
    draw(&at("pictures"))?;
    let pictures = at("pictures.zr");
    say("   $ zrfs import pictures/ pictures.zr")?;
    import::folder_into(at("pictures"), &pictures, stop.clone())?.tell(
        Path::new("   pictures.zr"),
        None,
        &[],
    )?;
    show(&pictures, &mountpoint, "png", |name| fs::read(name).map(|bytes| bytes.get(..8).map(hex)))?;

    say("\n2. A dense store: 1000 float32 arrays of 16 x 16, each a .npy file in the mount:")?;
    stop.check("the demo's files are gone")?;
    let dense = at("dense.zr");
    write_dense(&dense)?;
    show(&dense, &mountpoint, "npy", |name| {
        fs::read(name).map(|bytes| bytes.get(10..75).map(|text| String::from_utf8_lossy(text).into_owned()))
    })?;

    say("\nBoth mounts are gone again, and so are the demo's files. Now with a folder of your own:

   zrfs import YOUR-FOLDER my.zr
   mkdir -p mnt && zrfs mount my.zr mnt
   ls mnt/tree/ mnt/records/ | head
   zrfs umount mnt")?;
    Ok(())
}

fn say(text: &str) -> Outcome {
    let mut out = Output::new();
    out.line(text)?;
    out.finish()
}

/// Mounts a store, shows what a shell would show of it, unmounts.
fn show(
    store: &Path,
    mountpoint: &Path,
    ext: &str,
    first_bytes: impl Fn(&Path) -> std::io::Result<Option<String>>,
) -> Outcome {
    let session = mount::start(store, mountpoint, &MountOptions::default())?;
    let name = store.file_name().unwrap_or_default().display();
    let read = |path: &Path, e| Error::io(format!("can't read {}", path.display()), e);
    say(&format!("   $ zrfs mount {name} mnt"))?;
    let records = mountpoint.join("records");
    let mut names = Vec::new();
    for entry in fs::read_dir(&records).map_err(|e| read(&records, e))? {
        let entry = entry.map_err(|e| read(&records, e))?;
        let len = entry.metadata().map_err(|e| read(&entry.path(), e))?.len();
        names.push((entry.file_name(), len));
    }
    names.sort();
    say(&format!("   $ ls -l mnt/records/    ({} files)", names.len()))?;
    for (name, len) in names.iter().take(3) {
        say(&format!("   {len:>6} {}", name.display()))?;
    }
    let path = records.join(format!("00000000.{ext}"));
    let bytes = first_bytes(&path).map_err(|e| read(&path, e))?.unwrap_or_default();
    say(&format!("   the first one begins: {bytes}"))?;
    let tree = mountpoint.join("tree");
    if tree.exists() {
        let mut classes = Vec::new();
        for entry in fs::read_dir(&tree).map_err(|e| read(&tree, e))? {
            classes.push(entry.map_err(|e| read(&tree, e))?.file_name().to_string_lossy().into_owned());
        }
        classes.sort();
        say(&format!("   $ ls mnt/tree/           {}    (the folder as it was)", classes.join("  ")))?;
    }
    let path = mountpoint.join("stats");
    let stats = fs::read_to_string(&path).map_err(|e| read(&path, e))?;
    let stats: serde_json::Value =
        serde_json::from_str(&stats).map_err(|e| Error::io("stats is no JSON", e.into()))?;
    let field = |name: &str| stats.get(name).cloned().unwrap_or_default();
    say(&format!(
        "   $ cat mnt/stats         records {}, decoded {} B, stored {} B",
        field("records"),
        field("logical_bytes"),
        field("live_bytes")
    ))?;
    session.unmounter().unmount()?;
    session.wait()?;
    say("   $ zrfs umount mnt")
}

/// Draws a folder of pictures, one class a folder.
fn draw(root: &Path) -> Result<()> {
    for class in CLASSES {
        let dir = root.join(class);
        fs::create_dir_all(&dir).map_err(|e| Error::io(format!("can't create {}", dir.display()), e))?;
        for n in 0..PICTURES {
            let path = dir.join(format!("{n:02}.png"));
            let picture = RgbImage::from_fn(32, 32, |x, y| {
                let (dx, dy) = (x.abs_diff(16), y.abs_diff(16));
                let inside = match class {
                    "circles" => dx * dx + dy * dy < 40 + n * 8,
                    "squares" => dx.max(dy) < 4 + n / 2,
                    _ => (x + y * n) % 8 < 4,
                };
                let shade = u8::try_from(n * 12).unwrap_or(255);
                if inside { Rgb([shade, 90, 255 - shade]) } else { Rgb([240, 240, 230]) }
            });
            let failed = |e| Error::io(format!("can't write {}", path.display()), std::io::Error::other(e));
            picture.save(&path).map_err(failed)?;
        }
    }
    Ok(())
}

/// Makes the dense store: gentle waves in steps, as a sensor of a few bits gives.
fn write_dense(path: &Path) -> Result<()> {
    let store = Store::create(path, Version::V1)?;
    Schema::new("<f4", &SHAPE, Codec::default())?.write(&store)?;
    let wave = |i: usize| (((i % SAMPLE_LEN) as f32 / 16.0 + (i / SAMPLE_LEN) as f32).sin() * 50.0).round();
    let bytes: Vec<u8> = (0..SAMPLES * SAMPLE_LEN).flat_map(|i| wave(i).to_le_bytes()).collect();
    store.append(&bytes, SAMPLE_LEN * 4, Codec::default())?;
    store.sync()
}

/// Bytes as `89 50 4e 47`.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
