//! What the files are made of: the stores, and the stream of each epoch.
//!
//! Shared by all threads: the epoch, loaded without a lock and replaced by whoever first sees the store in a new one;
//! tables of archives, behind a mutex that is held for a look-up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;

use super::archive::{self, CLASS, Extensions, Sample, Table};
use super::dense::{Dense, What};
use super::draw::Draws;
use super::parts::Parts;
use super::scalar;
use crate::codec::Codec;
use crate::dataset::Schema;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::view::decoded::Decoded;
use crate::view::{Sampled, StepFile, ViewOptions, names, tree};

/// Tables that are kept, in bytes, or one.
const TABLES: usize = 16 << 20;
/// Samples of an endless archive that are laid out together, in whole steps: one at least.
const TOGETHER: u64 = 512;

/// A store, and what its records are.
pub(super) struct Source {
    pub(super) store: Arc<Store>,
    pub(super) schema: Option<Schema>,
    pub(super) is_labels: bool,
}

impl Source {
    /// Bytes of a record, where all have the same.
    pub(super) fn item(&self) -> Option<u64> {
        self.schema.as_ref().map(Schema::record_bytes)
    }
}

/// How labels go into an archive.
pub(super) enum LabelKind {
    /// As the text of a number.
    Text(Schema),
    /// As a .npy file, which begins so.
    Npy(Vec<u8>),
    /// As they are.
    Bytes,
}

pub(in crate::view) struct Engine {
    pub(super) data: Source,
    pub(super) labels: Option<(Source, LabelKind)>,
    /// What stands before a record in a `.npy` member.
    pub(super) head: Vec<u8>,
    /// The extension of records, and whether it is that of all.
    ext: String,
    is_forced: bool,
    options: ViewOptions,
    epoch: ArcSwap<Epoch>,
    pub(super) decoded: Arc<Decoded>,
    pub(super) parts: Arc<Parts>,
}

/// The stream of one epoch of the store.
pub(super) struct Epoch {
    /// The store's number of it.
    pub(super) number: u64,
    /// Records that steps are drawn from, which are those of `array.npy`.
    pub(super) length: u64,
    /// When the files became what they are.
    pub(super) since: SystemTime,
    /// `None` where there are no records.
    pub(super) draws: Option<Draws>,
    /// Last used last.
    tables: Mutex<Vec<Arc<Table>>>,
}

impl Epoch {
    fn new(store: &Store, options: &ViewOptions, number: u64, records: u64) -> Result<Epoch> {
        let length = options.length.map_or(records, |length| length.min(records));
        let draws = (length > 0).then(|| Draws::new(length, &options.sampler)).transpose()?;
        Ok(Epoch { number, length, since: store.modified()?, draws, tables: Mutex::default() })
    }

    /// How many of the first `steps` there are.
    pub(super) fn reachable(&self, steps: u64) -> u64 {
        let Some(draws) = &self.draws else { return 0 };
        let (mut there, mut not) = (0, steps);
        // Those that can be drawn come first.
        while there < not {
            let step = there + (not - there) / 2;
            if draws.reaches(step) { there = step + 1 } else { not = step }
        }
        there
    }

    /// The stream, where there is one.
    pub(super) fn draws(&self) -> Result<&Draws> {
        self.draws
            .as_ref()
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "there are no records to draw from"))
    }
}

impl Engine {
    pub(in crate::view) fn new(
        store: Arc<Store>,
        labels: Option<Arc<Store>>,
        schema: Option<Schema>,
        head: Vec<u8>,
        ext: String,
        options: ViewOptions,
        decoded: Arc<Decoded>,
    ) -> Result<Engine> {
        let records = store.len();
        if let Some(length) = options.length.filter(|&length| length > records) {
            let text =
                format!("length={length} is more than the {records} records of {}", store.path().display());
            return Err(Error::new(ErrorKind::OutOfRange, text)
                .with_help("batches of a longer store were others: mount with the length that it has now"));
        }
        let epoch = Epoch::new(&store, &options, store.epoch(), records)?;
        if epoch.draws.as_ref().is_some_and(|draws| !draws.reaches(options.start)) {
            let text = format!("start={} lies past draw 2^32 of the iid stream", options.start);
            return Err(Error::new(ErrorKind::Unsupported, text)
                .with_help("an iid stream can't be entered there: take mode=shuffle"));
        }
        let labels = labels.map(|labels| labels_of(labels, records, &store)).transpose()?;
        Ok(Engine {
            data: Source { store, schema, is_labels: false },
            labels,
            head,
            ext,
            is_forced: options.ext.is_some(),
            parts: Arc::new(Parts::new(options.cache)),
            options,
            epoch: ArcSwap::from_pointee(epoch),
            decoded,
        })
    }

    /// The stream of the epoch that the store is in.
    pub(super) fn epoch(&self) -> Arc<Epoch> {
        let epoch = self.epoch.load_full();
        if epoch.number == self.data.store.epoch() {
            return epoch;
        }
        self.begin_epoch(self.data.store.len());
        self.epoch.load_full()
    }

    /// Begins the stream of the store's epoch, if nobody has: `records` are left.
    pub(super) fn begin_epoch(&self, records: u64) {
        let before = self.epoch.load();
        let number = self.data.store.epoch();
        if before.number == number {
            return;
        }
        match Epoch::new(&self.data.store, &self.options, number, records) {
            // One thread's epoch is that of all: its length is told in headers and sizes.
            Ok(epoch) => drop(self.epoch.compare_and_swap(&before, Arc::new(epoch))),
            Err(e) => log::error!("batches can't go on after a delete: {e}"),
        }
        self.parts.clear();
    }

    pub(super) fn batch(&self) -> u64 {
        self.options.sampler.batch_size as u64
    }

    pub(super) fn start(&self) -> u64 {
        self.options.start
    }

    fn label_schema(&self) -> Option<&Schema> {
        self.labels.as_ref()?.0.schema.as_ref()
    }

    /// Whether there is such a file of steps, in whatever step.
    pub(super) fn has(&self, file: StepFile) -> bool {
        match file {
            StepFile::Npy => self.data.schema.is_some(),
            StepFile::Labels => self.label_schema().is_some(),
            StepFile::Tar | StepFile::Index => true,
        }
    }

    /// A step's file that is no archive; `None` where there is none, or none so large.
    pub(super) fn step(&self, file: StepFile, step: u64) -> Option<Dense> {
        let batch = self.batch();
        match file {
            StepFile::Npy => Dense::new(What::Data, self.data.schema.as_ref()?, batch, step, true, false),
            StepFile::Labels => Dense::new(What::Labels, self.label_schema()?, batch, step, true, false),
            StepFile::Index => {
                let schema = Schema::new("<i8", &[], Codec::Raw).ok()?;
                Dense::new(What::Index, &schema, batch, step, true, false)
            }
            StepFile::Tar => None,
        }
    }

    /// A file of the root that is no archive; `None` where there is none, or none so large.
    pub(super) fn sampled(&self, which: Sampled, epoch: &Epoch) -> Option<Dense> {
        let (batch, first) = (self.batch(), self.start());
        let data = self.data.schema.as_ref();
        match which {
            Sampled::Array => Dense::new(What::All, data?, epoch.length, 0, true, false),
            Sampled::Batch => Dense::new(What::Data, data?, batch, first, false, true),
            Sampled::BatchNpy => Dense::new(What::Data, data?, batch, first, true, true),
            Sampled::BatchLabels => Dense::new(What::Labels, self.label_schema()?, batch, first, true, true),
            Sampled::BatchTar => None,
        }
    }

    /// Steps of an endless archive that are laid out together.
    pub(super) fn together(&self) -> u64 {
        (TOGETHER / self.batch().max(1)).max(1)
    }

    /// What `steps` steps from `first` on have where in an archive, which ends behind them where `is_whole`.
    ///
    /// Cost: the length of each record is looked up, and its name, where records have names.
    pub(super) fn table(&self, epoch: &Epoch, first: u64, steps: u64, is_whole: bool) -> Result<Arc<Table>> {
        let mut tables = epoch.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |table: &Arc<Table>| table.first == first && table.is_whole == is_whole;
        if let Some(at) = tables.iter().position(is_it) {
            let table = tables.remove(at);
            tables.push(Arc::clone(&table));
            return Ok(table);
        }
        drop(tables);
        let table = Arc::new(self.lay_out(epoch, first, steps, is_whole)?);
        let mut tables = epoch.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|other| !is_it(other));
        tables.push(Arc::clone(&table));
        let mut bytes = 0;
        let kept = tables.iter().rev().take_while(|table| {
            bytes += table.bytes();
            bytes <= TABLES
        });
        let old = tables.len() - kept.count().max(1);
        tables.drain(..old);
        Ok(table)
    }

    fn lay_out(&self, epoch: &Epoch, first: u64, steps: u64, is_whole: bool) -> Result<Table> {
        let draws = epoch.draws()?;
        let batch = self.batch();
        let count = usize::try_from(steps.saturating_mul(batch)).unwrap_or(usize::MAX);
        let mut samples = Vec::new();
        samples.try_reserve_exact(count).map_err(|_| {
            Error::new(ErrorKind::Memory, format!("there is no memory for an archive of {count} samples"))
        })?;
        let mut extensions = Extensions::default();
        let (mut lengths, mut label_lengths) = (Vec::new(), Vec::new());
        let mut drawing = draws.begin();
        let mut at = 0u64;
        for step in 0..steps {
            let indices = drawing.step(first.wrapping_add(step))?;
            self.data.lengths(indices, &mut lengths)?;
            match &self.labels {
                Some((source, _)) => source.lengths(indices, &mut label_lengths)?,
                None => {
                    label_lengths.clear();
                    label_lengths.resize(indices.len(), 0);
                }
            }
            for ((&index, &len), &label_len) in indices.iter().zip(&lengths).zip(&label_lengths) {
                let (ext, label_ext) = self.extensions(index, &mut extensions);
                let sample = Sample { at, index: tree::index(index), len, label_len, ext, label_ext };
                at += self.sample_bytes(&sample, extensions.get(ext));
                samples.push(sample);
            }
        }
        Ok(Table { first, batch, samples, extensions, end: at, is_whole })
    }

    /// What stands before the record in a member of this extension.
    pub(super) fn head(&self, ext: &[u8]) -> &[u8] {
        if ext == b"npy" { &self.head } else { &[] }
    }

    /// Bytes of a sample's data member, and of its label's.
    pub(super) fn member_lengths(&self, sample: &Sample, ext: &[u8]) -> (u64, Option<u64>) {
        let data = self.head(ext).len() as u64 + u64::from(sample.len);
        let label = self.labels.as_ref().map(|(_, kind)| match kind {
            // A number takes less than a block, whichever it is.
            LabelKind::Text(_) => 1,
            LabelKind::Npy(head) => head.len() as u64 + u64::from(sample.label_len),
            LabelKind::Bytes => sample.label_len.into(),
        });
        (data, label)
    }

    fn sample_bytes(&self, sample: &Sample, ext: &[u8]) -> u64 {
        let (data, label) = self.member_lengths(sample, ext);
        archive::member(data) + label.map_or(0, archive::member) + archive::member(1)
    }

    /// The extensions of a sample's members, of the data and the label.
    fn extensions(&self, index: u64, extensions: &mut Extensions) -> (u16, u16) {
        let own = own_extension(&self.data.store, index).filter(|_| !self.is_forced);
        let data = own.as_deref().unwrap_or(self.ext.as_bytes());
        let number = extensions.number(data);
        let label = match &self.labels {
            None => return (number, number),
            Some((_, LabelKind::Text(_))) => CLASS.to_vec(),
            Some((_, LabelKind::Npy(_))) => b"label.npy".to_vec(),
            Some((source, LabelKind::Bytes)) => {
                own_extension(&source.store, index).unwrap_or_else(|| CLASS.to_vec())
            }
        };
        let label = archive::label_extension(&label, extensions.get(number));
        (number, extensions.number(&label))
    }
}

impl Source {
    /// Lengths of records. Those whose entry is damaged get 0: they fail when they are read, and the others do not.
    fn lengths(&self, indices: &[u64], lengths: &mut Vec<u32>) -> Result<()> {
        lengths.clear();
        if let Some(item) = self.item() {
            // That of the schema, so that a record of another one can't move the others.
            lengths.resize(indices.len(), u32::try_from(item).unwrap_or(u32::MAX));
            return Ok(());
        }
        lengths.resize(indices.len(), 0);
        if self.store.lengths(indices, lengths).is_ok() {
            return Ok(());
        }
        for (&index, len) in indices.iter().zip(lengths) {
            *len = match self.store.location(index) {
                Ok(loc) => loc.logic_length,
                Err(e) if e.kind() == ErrorKind::Damaged => 0,
                Err(e) => return Err(e),
            };
        }
        Ok(())
    }
}

/// The extension of a record's name. A name that can't be read is none: `records/` logs it.
fn own_extension(store: &Store, index: u64) -> Option<Vec<u8>> {
    let named = store.names().ok()??.of_record(index).ok()??;
    names::extension(&named.name).map(<[u8]>::to_vec)
}

fn labels_of(labels: Arc<Store>, records: u64, store: &Store) -> Result<(Source, LabelKind)> {
    let has = labels.len();
    if has != records {
        let text = format!(
            "the labels {} are {has}, the records of {} are {records}",
            labels.path().display(),
            store.path().display()
        );
        return Err(Error::new(ErrorKind::Geometry, text)
            .with_help("label i belongs to record i: mount with the store that was made for these records"));
    }
    let schema = Schema::read(&labels).unwrap_or_else(|e| {
        log::warn!("{e}; labels are shown without a .npy header");
        None
    });
    let kind = match &schema {
        None => LabelKind::Bytes,
        Some(schema) if scalar::is_text(schema) => LabelKind::Text(schema.clone()),
        Some(schema) => LabelKind::Npy(schema.npy_header()),
    };
    Ok((Source { store: labels, schema, is_labels: true }, kind))
}
