//! Large stores of small records, made fast, and what their records add up to.

use zrfs::store::NewNames;
use zrfs::{Codec, Store, Version};

use crate::common::splitmix;
use crate::{Outcome, Words};

/// Seed of the records: word `j` of record `i` is number `i * words + j` of its stream.
const SEED: u64 = 7;

/// Records in a block that is made or read at once.
const BLOCK: usize = 1 << 18;

/// Makes a store of `FOLDERS` times `EACH` records, named in as many folders; without folders, of `EACH` nameless ones.
pub(crate) fn fill(words: &mut Words<'_>) -> Outcome<Vec<u64>> {
    let path = words.text()?;
    let (folders, each, item_len): (usize, usize, usize) =
        (words.number()?, words.number()?, words.number()?);
    if item_len == 0 || !item_len.is_multiple_of(8) {
        return Err(format!("records of {item_len} B are not made of words").into());
    }
    let store = Store::create(path, Version::V1)?;
    let mut appender = store.appender()?;
    let (len, words) = (folders.max(1) * each, item_len / 8);
    let mut block = Vec::new();
    for start in (0..len).step_by(BLOCK) {
        block.clear();
        let numbers = start * words..len.min(start + BLOCK) * words;
        block.extend(numbers.flat_map(|number| splitmix(SEED, number as u64).to_le_bytes()));
        appender.append(&block, item_len, Codec::Raw)?;
    }
    if folders > 0 {
        let mut names = NewNames::new(1);
        for folder in 0..folders {
            let folder = names.folder_at(format!("{folder:06}").as_bytes())?;
            for name in 0..each {
                names.record(folder, format!("{name:08}.bin").as_bytes(), 1, false)?;
            }
        }
        appender.set_names(&names)?;
    }
    appender.commit()?;
    store.sync()?;
    Ok(vec![store.len()])
}

/// The number of records and the sum of their first words: whatever their order, the same records give the same sum.
pub(crate) fn first_words(words: &mut Words<'_>) -> Outcome<Vec<u64>> {
    let store = Store::open_read_only(words.text()?)?;
    let item_len: usize = words.number()?;
    let indices: Vec<u64> = (0..store.len()).collect();
    let mut block = Vec::new();
    let mut sum = 0u64;
    for indices in indices.chunks(BLOCK) {
        block.resize(item_len * indices.len(), 0);
        store.gather(indices, &mut block, item_len)?;
        for record in block.chunks_exact(item_len) {
            let word = record.first_chunk().ok_or("records of less than a word")?;
            sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    Ok(vec![store.len(), sum])
}
