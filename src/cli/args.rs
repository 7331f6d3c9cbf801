//! What the commands take: arguments, their defaults, and the pages of `--help`. Nothing is done here, so that man pages and
//! completions are made of this file alone (packaging/pages.rs).

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use zrfs::fuse::MountOptions;
use zrfs::{Codec, Mode};

/// Packs millions of small training samples into one compressed record store and mounts it as files.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = "First steps:\n  zrfs demo")]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    Import(ImportArgs),
    Export(ExportArgs),
    Ls(LsArgs),
    Cat(CatArgs),
    Stats(StatsArgs),
    Sample(SampleArgs),
    Delete(DeleteArgs),
    Compact(CompactArgs),
    Verify(VerifyArgs),
    Repair(RepairArgs),
    Seal(SealArgs),
    Mount(MountArgs),
    Umount(UmountArgs),
    Demo(DemoArgs),
}

/// Pack folders, lists of files, archives or arrays into a store
///
/// A folder: each file is one record, in the order of torchvision's ImageFolder, and keeps its path. @LIST: the files whose
/// paths are in LIST, one a line, in that order; @- reads them from standard input. A .tar, .tar.gz or .tgz archive, or -
/// for one on standard input: its files in its order; behind them those that hard links name, and links that are followed.
/// A .npy file, or the array x of a .npz file as a.npz:x: one record for each index of the first axis. Work goes on in
/// STORE.partial, which becomes STORE when it is complete. What is done when an import is interrupted stays there, for --resume.
#[derive(Args)]
#[command(
    override_usage = "zrfs import [OPTIONS] <SOURCE>... <STORE>",
    after_help = "Examples:
  zrfs import photos/ photos.zr
  zrfs import photos/ photos.zr --only '*.jpg' --only '*.png'
  zrfs import photos/ photos.zr --labels labels.zr --links keep
  zrfs import @picked.txt picked.zr
  zrfs import photos.tar.gz photos.zr
  ssh host tar -c photos | zrfs import - photos.zr
  zrfs import shard-0.tar shard-1.tar images.zr --only '*.jpg'
  zrfs import features.npy features.zr --codec raw
  zrfs import arrays.npz:features features.zr
  zrfs import tokens.npy tokens.zr --rows 1024
  zrfs import samples/ samples.zr --stack
  zrfs import more-photos/ photos.zr --append
  zrfs import photos/ photos.zr --resume"
)]
pub(super) struct ImportArgs {
    /// Folders, lists (@LIST, whose paths start at the current folder), archives (.tar, .tar.gz, -) or arrays (.npy,
    /// .npz:NAME), then the store; a folder whose name begins with @ is ./@NAME
    #[arg(required = true, num_args = 1.., value_names = ["SOURCE", "STORE"])]
    pub(super) paths: Vec<PathBuf>,
    /// Append to a store that is there; it keeps its old length until all is written
    #[arg(long)]
    pub(super) append: bool,
    /// Continue an import that was interrupted, given as before, behind the last records that it has kept
    #[arg(long)]
    pub(super) resume: bool,
    /// How records are stored; flate stores a record raw where it saves less than 2%
    #[arg(long, value_enum, default_value = "flate")]
    pub(super) codec: CodecName,
    /// Deflate level, 1 (fast) to 12 (small)
    #[arg(long, value_name = "N", default_value_t = Codec::DEFAULT_LEVEL,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(Codec::MAX_LEVEL)))]
    pub(super) level: u8,
    /// Take only files that match; a pattern without / is matched with the file's name. May be given again
    #[arg(long, value_name = "GLOB")]
    pub(super) only: Vec<String>,
    /// What becomes of symbolic links
    #[arg(long, value_enum, default_value = "follow")]
    pub(super) links: Links,
    /// Store the class of each file as well: the number of its folder at the top, as ImageFolder counts them, as an int64
    /// in a store of its own, the names beside them in classes.json
    #[arg(long, value_name = "STORE")]
    pub(super) labels: Option<PathBuf>,
    /// Make a dense store of .npy files that have one dtype and shape: each is one record
    #[arg(long)]
    pub(super) stack: bool,
    /// Make records of N items each of a 1-D array; items left over at its end are left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) rows: Option<u64>,
    /// In a list of paths a NUL byte ends each, not a newline
    #[arg(short = '0', long)]
    pub(super) null: bool,
    /// Refuse what format version 1 does not hold: records that are empty or over 1 MiB
    #[arg(long, conflicts_with = "large")]
    pub(super) v1: bool,
    /// With --append: change a version 1 store to version 2, which holds records up to 1 GiB and which loaderx
    /// 0.5.0 refuses
    #[arg(long)]
    pub(super) large: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum CodecName {
    /// Deflate, record by record
    Flate,
    /// As they are
    Raw,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Links {
    /// Take the file or folder behind them
    Follow,
    /// Keep those that stay inside the folder or archive as links, follow the others; an archive with others is refused
    Keep,
}

/// List records: index, length in bytes, codec, name
///
/// All of them where none are named. The name is the path of the file that the record came from, relative to the folder that was
/// imported; control characters and backslashes in it are escaped, as in \n. As JSON, bytes that are no UTF-8 are what Python's
/// os.fsdecode makes of them, and the time of the file is in nanoseconds since 1970.
#[derive(Args)]
#[command(after_help = "Examples:
  zrfs ls photos.zr
  zrfs ls photos.zr 7 100-199
  zrfs ls photos.zr --names list.txt
  zrfs ls photos.zr --json | jq .name")]
pub(super) struct LsArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
    #[command(flatten)]
    pub(super) records: RecordsArgs,
    /// One JSON object a record
    #[arg(long)]
    pub(super) json: bool,
}

/// Write records out again: as a folder, a tar archive or a .npy array
///
/// DEST decides: a name that ends in .npy is one array, one in .tar (or - for standard output) an archive, any other a new folder.
/// Named records go to their paths, with their times and their executable bits, into folders and beside links as they were;
/// without RECORDS all of it, empty folders too. A record without a name becomes 00000042.bin, or .npy where the store
/// has a schema. Work goes on in DEST.partial, which becomes DEST when it is complete; nothing that is there is overwritten. Damaged
/// records are left out and named, exit status 1; a .npy is not written then, since its rows would move up.
#[derive(Args)]
#[command(after_help = "Examples:
  zrfs export photos.zr photos/
  zrfs export photos.zr some/ 7 100-199
  zrfs export photos.zr bad.tar --names bad.txt
  zrfs export photos.zr - | ssh host tar -x -C photos
  zrfs export features.zr features.npy 0-999")]
pub(super) struct ExportArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
    /// What to write: NAME.npy, NAME.tar, - (a tar on standard output), or a folder that is not there yet or empty
    pub(super) dest: PathBuf,
    #[command(flatten)]
    pub(super) records: RecordsArgs,
}

/// Write records to standard output, one after another
#[derive(Args)]
#[command(
    override_usage = "zrfs cat [OPTIONS] <STORE> <RECORDS...|--names <FILE>>",
    group(which_records()),
    after_help = "Examples:
  zrfs cat photos.zr 42 > 42.jpg
  zrfs cat photos.zr 0-9 | sha256sum
  echo cats/a.jpg | zrfs cat photos.zr --names - > a.jpg"
)]
pub(super) struct CatArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
    #[command(flatten)]
    pub(super) records: RecordsArgs,
}

/// Show what a store holds
#[derive(Args)]
#[command(after_help = "Examples:
  zrfs stats photos.zr
  zrfs stats photos.zr --json
  zrfs stats /mnt/photos")]
pub(super) struct StatsArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
    /// As one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Print the indices that a training run draws, one step a line
///
/// Reads the number of records and nothing else. The same seed gives the same indices in every release; sequential and iid are those of
/// loaderx 0.5.0. Ranks take the steps in turn: rank 1 of a world of 4 has steps 1, 5, 9, … of the whole.
#[derive(Args)]
#[command(after_help = "Examples:
  zrfs sample photos.zr
  zrfs sample photos.zr --mode shuffle --seed 7
  zrfs sample photos.zr --mode shuffle --rank 1 --world 4 --start 1000 --steps 10
  zrfs sample photos.zr | zrfs cat photos.zr - > batch.bin")]
pub(super) struct SampleArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
    /// The order of the indices
    #[arg(long, value_enum, default_value = "iid")]
    pub(super) mode: ModeName,
    /// Which stream of that mode
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub(super) seed: u64,
    /// Indices a step, up to 16777216
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(super) batch_size: u64,
    /// The first step to print, counted by this rank from 0
    #[arg(long, value_name = "STEP", default_value_t = 0)]
    pub(super) start: u64,
    /// Steps to print
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) steps: u64,
    /// Draw from the first N records only; all without
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) length: Option<u64>,
    /// Which of the ranks that share the stream, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) rank: u64,
    /// Number of ranks that share the stream
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) world: u64,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ModeName {
    /// One after another, round and round
    Sequential,
    /// Uniform, with replacement
    Iid,
    /// Every record once a pass, each pass in a new order
    Shuffle,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Mode {
        match name {
            ModeName::Sequential => Mode::Sequential,
            ModeName::Iid => Mode::Iid,
            ModeName::Shuffle => Mode::Shuffle,
        }
    }
}

/// Delete records: all that are named, or none
///
/// The last records move into the holes, from the highest hole down, so indices stay without gaps; each move is printed as
/// `1999 -> 7`. The space comes back with `zrfs compact`. No other process may have the store open; one that is mounted is
/// named by its mount point.
#[derive(Args)]
#[command(
    override_usage = "zrfs delete [OPTIONS] <STORE> <RECORDS...|--names <FILE>>",
    group(which_records()),
    after_help = "Examples:
  zrfs delete photos.zr 7 100-199
  zrfs delete photos.zr - < bad-indices.txt
  zrfs delete photos.zr --names bad-files.txt
  zrfs delete data.zr 7 --with labels.zr
  zrfs delete /mnt/photos 7 100-199"
)]
pub(super) struct DeleteArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
    #[command(flatten)]
    pub(super) records: RecordsArgs,
    /// Stores of the same length that lose the same records, in one step
    #[arg(long, value_name = "STORE", num_args = 1..)]
    pub(super) with: Vec<PathBuf>,
}

/// Give back the disk that deleted records have left
///
/// The bytes of the other records slide together. Every record stays whole at every moment: what is cut off is done by the
/// next run. No other process may have the store open; one that is mounted is named by its mount point, and serves meanwhile.
#[derive(Args)]
#[command(after_help = "Examples:
  zrfs compact photos.zr
  zrfs compact /mnt/photos")]
pub(super) struct CompactArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
    /// Give up the last records, where another program has deleted them and nothing else
    #[arg(long)]
    pub(super) accept: bool,
}

/// Read every record and hold it against its checksum
///
/// Prints a line for each bad record: index, place, what is wrong. Exit status 1 if there is any. Records that another
/// program appended have no checksum and count as unchecked. Changes nothing.
#[derive(Args)]
#[command(after_help = "Examples:
  zrfs verify photos.zr
  zrfs verify photos.zr --json | jq '.bad[].index'")]
pub(super) struct VerifyArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
    /// As one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Take the bad records out of a store, and find a lost header again
///
/// Keeps every record that `zrfs verify` does not call bad. What can be read of the others goes to .zrfs/set-aside-N in the
/// store. The last records move into the holes; each move is printed as `1999 -> 7`.
#[derive(Args)]
#[command(after_help = "Example:
  zrfs repair photos.zr")]
pub(super) struct RepairArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
}

/// Cut a store's files to what they hold, for shipping
///
/// loaderx 0.5.0 can read such a store (of version 1), but must not append to it. An append by zrfs gives meta.zr its full size again,
/// and so does --undo.
#[derive(Args)]
#[command(after_help = "Examples:
  zrfs seal photos.zr
  zrfs seal photos.zr --undo")]
pub(super) struct SealArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
    /// Give meta.zr its full size again, so that loaderx can append
    #[arg(long)]
    pub(super) undo: bool,
}

/// Mount a store as files
///
/// Returns when the mount serves; a daemon goes on serving it.
#[derive(Args)]
#[command(after_help = format!("Examples:
  zrfs mount photos.zr /mnt/photos
  zrfs mount photos.zr /mnt/photos -o ext=jpg,allow_other
  zrfs mount -f photos.zr /mnt/photos
  zrfs mount photos.zr /mnt/photos -o labels=labels.zr,mode=shuffle,seed=7,batch_size=64,steps=1000

Options (-o), as in /etc/fstab:
{}", MountOptions::HELP))]
pub(super) struct MountArgs {
    /// The store, or the mount point of a live mount
    pub(super) store: PathBuf,
    /// An existing folder
    pub(super) mountpoint: PathBuf,
    /// Stay in front; end with Ctrl-C
    #[arg(short = 'f', long)]
    pub(super) foreground: bool,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(super) options: Vec<String>,
    /// The daemon's own call
    #[arg(long, hide = true)]
    pub(super) detached: bool,
}

/// Unmount what zrfs has mounted
#[derive(Args)]
#[command(after_help = "Example:
  zrfs umount /mnt/photos")]
pub(super) struct UmountArgs {
    /// The mount point
    pub(super) mountpoint: PathBuf,
    /// Take it from its place although it is in use; it ends when its last file is closed
    #[arg(short, long)]
    pub(super) lazy: bool,
}

/// Show in a few seconds what zrfs does
///
/// Makes two small stores, mounts them, shows what is in the mounts, and removes everything again.
#[derive(Args)]
#[command(after_help = "Example:
  zrfs demo")]
pub(super) struct DemoArgs {}

/// For commands that must be told which records they are to take.
pub(super) fn which_records() -> clap::ArgGroup {
    clap::ArgGroup::new("which").args(["records", "names"]).required(true)
}

#[derive(Args)]
pub(super) struct RecordsArgs {
    /// Records such as 7 12 100-199, separated by spaces, commas or newlines; - reads them from standard input
    pub(super) records: Vec<String>,
    /// Take the records of the paths in FILE, one a line, byte for byte as in the folder that was imported (`ls` escapes
    /// control characters and backslashes, these are as they are); - reads them from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "records")]
    pub(super) names: Option<PathBuf>,
    /// In the list of --names a NUL byte ends each path, not a newline
    #[arg(short = '0', long, requires = "names")]
    pub(super) null: bool,
}
