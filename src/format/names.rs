//! `.zrfs/tree`, `.zrfs/names` and `.zrfs/lookup-N`: names of records.
//!
//! The tree holds nodes, each at a multiple of 8 bytes; its number is its offset divided by 8. Nodes are only ever added.
//! What of a node may change later (the next one in its folder, the index of a record, the children of a folder) stands
//! outside its checksum, and is believed only where something else confirms it: a child names its folder, a record's row
//! in `names` names its node.

use super::checksum::checksum;
use super::limits::HEADER_BYTES;

/// Number of the root's node. Those before it would lie in the header.
pub const ROOT_NODE: u32 = 32;
/// Size of the tree's header in bytes.
pub const TREE_HEADER_BYTES: usize = 256;
/// Bytes that a node takes beside its name and target.
pub const NODE_BYTES: usize = 40;
/// Longest name that a file system gives, in bytes.
pub const MAX_NAME: usize = 255;
/// Longest target of a link that a file system takes, in bytes.
pub const MAX_TARGET: usize = 4095;
/// Size of the header of the file of names in bytes.
pub const NAMES_HEADER_BYTES: usize = 16;
/// The header of the file of names: magic, version, zeros.
pub const NAMES_FIRST_UNIT: [u8; NAMES_HEADER_BYTES] = *b"ZRNM\x01\0\0\0\0\0\0\0\0\0\0\0";
/// Size of a slot of the lookup file in bytes: hash and node number.
pub const SLOT_BYTES: usize = 8;

/// Byte offset in the file of names of the node number of record `index`.
pub const fn name_at(index: u32) -> u64 {
    NAMES_HEADER_BYTES as u64 + index as u64 * 4
}

/// Byte offset in the tree of node `number`.
pub const fn node_at(number: u32) -> u64 {
    number as u64 * 8
}

/// Bytes from a node to the next one.
pub const fn node_stride(name: usize, target: usize) -> usize {
    (NODE_BYTES + name + target).next_multiple_of(8)
}

/// How far the tree goes where meta.zr holds a certain header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeExtent {
    /// The header of meta.zr that it goes with.
    pub meta: [u8; HEADER_BYTES],
    /// Number of the first node that is not there.
    pub end: u32,
    /// Number in the name of the lookup file.
    pub lookup: u32,
    /// The lookup file has 2 to this power slots, at most 2^31.
    pub lookup_bits: u32,
    /// Slots of it that are taken.
    pub entries: u32,
}

/// Size of an extent in bytes.
const EXTENT_BYTES: usize = 64;
/// Where the two extents lie.
const EXTENTS_AT: usize = 64;
/// Where the mark of unfinished changes lies.
pub const UNFINISHED_AT: u64 = 192;

/// The header of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeHeader {
    /// The key of the hash of the lookup file.
    pub key: [u8; 16],
    /// Two extents: after an append both are the same; while one is under way, the one before it and the one after it.
    pub extents: [Option<TreeExtent>; 2],
    /// Nodes behind an extent may have been linked to; see `.zrfs/tree` in FORMAT.md.
    pub unfinished: bool,
}

impl TreeHeader {
    /// The first unit: magic, version, zeros.
    const FIRST_UNIT: [u8; 16] = *b"ZRTR\x01\0\0\0\0\0\0\0\0\0\0\0";

    /// Decodes a header; `None` where it is of another format, or no extent is whole.
    pub fn parse(bytes: &[u8; TREE_HEADER_BYTES]) -> Option<TreeHeader> {
        if !bytes.starts_with(&TreeHeader::FIRST_UNIT) {
            return None;
        }
        let extent = |which: usize| {
            let at = EXTENTS_AT + which * EXTENT_BYTES;
            TreeExtent::parse(bytes.get(at..at + EXTENT_BYTES)?.first_chunk()?)
        };
        let extents = [extent(0), extent(1)];
        let unfinished = bytes.get(usize::try_from(UNFINISHED_AT).ok()?) != Some(&0);
        let key = *bytes.get(16..)?.first_chunk()?;
        extents.iter().any(Option::is_some).then_some(TreeHeader { key, extents, unfinished })
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; TREE_HEADER_BYTES] {
        let mut bytes = [0; TREE_HEADER_BYTES];
        let mut put = |at: usize, part: &[u8]| {
            bytes.iter_mut().skip(at).zip(part).for_each(|(to, &from)| *to = from);
        };
        put(0, &TreeHeader::FIRST_UNIT);
        put(16, &self.key);
        for (which, extent) in self.extents.iter().enumerate() {
            let blank = [0; EXTENT_BYTES];
            put(EXTENTS_AT + which * EXTENT_BYTES, &extent.map_or(blank, |extent| extent.to_bytes()));
        }
        put(192, &[u8::from(self.unfinished)]);
        bytes
    }

    /// The extent that goes with `meta`, the header of meta.zr. Where neither does, another program has changed the store
    /// since, and the longer one is right, or shows folders too many.
    pub fn extent_for(&self, meta: &[u8; HEADER_BYTES]) -> Option<TreeExtent> {
        let known = || self.extents.iter().flatten();
        known()
            .find(|extent| extent.meta == *meta)
            .or_else(|| known().max_by_key(|extent| extent.end))
            .copied()
    }
}

impl TreeExtent {
    /// Byte offset in the tree of the first or second extent.
    pub const fn at(which: usize) -> u64 {
        (EXTENTS_AT + which * EXTENT_BYTES) as u64
    }

    /// The extent's bytes.
    pub fn to_bytes(&self) -> [u8; EXTENT_BYTES] {
        let mut body = Vec::with_capacity(EXTENT_BYTES);
        body.extend_from_slice(&self.end.to_le_bytes());
        body.extend_from_slice(&self.meta);
        for field in [self.lookup, self.lookup_bits, self.entries] {
            body.extend_from_slice(&field.to_le_bytes());
        }
        body.resize(EXTENT_BYTES - 4, 0);
        let mut bytes = [0; EXTENT_BYTES];
        let sum = checksum(&body).to_le_bytes();
        bytes.iter_mut().zip(sum.into_iter().chain(body)).for_each(|(to, from)| *to = from);
        bytes
    }

    fn parse(bytes: &[u8; EXTENT_BYTES]) -> Option<TreeExtent> {
        let (sum, body) = bytes.split_first_chunk::<4>()?;
        let field = |at: usize| Some(u32::from_le_bytes(*body.get(at..)?.first_chunk()?));
        let extent = TreeExtent {
            end: field(0)?,
            meta: *body.get(4..)?.first_chunk()?,
            lookup: field(20)?,
            lookup_bits: field(24)?,
            entries: field(28)?,
        };
        // Each entry is that of a node, which takes 40 bytes or more, and has a slot.
        let sound = *sum == checksum(body).to_le_bytes()
            && extent.lookup_bits <= 31
            && extent.end >= ROOT_NODE
            && extent.entries <= (extent.end - ROOT_NODE) / 5
            && u64::from(extent.entries) <= 1 << extent.lookup_bits;
        sound.then_some(extent)
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// Nothing: the place of a node that was lost.
    Blank,
    /// A folder.
    Folder,
    /// A named record.
    Record,
    /// A symbolic link.
    Link,
}

/// A node, as its bytes have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeNode<'a> {
    /// The next node in the same folder, a higher number; 0: none.
    pub next: u32,
    /// A record's index; a folder's first child.
    pub first: u32,
    /// A folder's last child.
    pub last: u32,
    /// Folders in a folder.
    pub folders: u32,
    /// The folder that it is in.
    pub parent: u32,
    /// Nanoseconds since 1970.
    pub modified_ns: i64,
    /// What it is.
    pub kind: TreeKind,
    /// Whether the file could be executed.
    pub executable: bool,
    /// Its name.
    pub name: &'a [u8],
    /// Where a link leads.
    pub target: &'a [u8],
}

/// Byte offsets in a node of what may change.
pub const NEXT_AT: u64 = 4;
/// As [`NEXT_AT`].
pub const FIRST_AT: u64 = 8;
/// Where the checksum begins to look.
const FIXED_AT: usize = 20;

impl<'a> TreeNode<'a> {
    /// Decodes the node that `bytes` begin with; `None` where it is damaged, or they end before it does.
    pub fn parse(bytes: &'a [u8]) -> Option<TreeNode<'a>> {
        let (head, behind) = bytes.split_first_chunk::<NODE_BYTES>()?;
        let field = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let name_len = usize::from(u16::from_le_bytes(*head.get(34..)?.first_chunk()?));
        let target_len = field(36)? as usize;
        let kind = match *head.get(32)? {
            0 => TreeKind::Blank,
            1 => TreeKind::Folder,
            2 => TreeKind::Record,
            3 => TreeKind::Link,
            _ => return None,
        };
        let (name, rest) = behind.split_at_checked(name_len)?;
        let target = if kind == TreeKind::Blank { &[] } else { rest.get(..target_len)? };
        // Of a blank what it covers is not looked at.
        let covered = if kind == TreeKind::Blank { 0 } else { name_len + target_len };
        let sum = checksum(bytes.get(FIXED_AT..NODE_BYTES + covered)?);
        let is_root = name.is_empty() && kind == TreeKind::Folder;
        let sound = field(0)? == sum
            && name_len <= MAX_NAME
            && (target_len <= MAX_TARGET || kind == TreeKind::Blank)
            && (kind == TreeKind::Blank || is_root || is_file_name(name));
        sound.then_some(TreeNode {
            next: field(4)?,
            first: field(8)?,
            last: field(12)?,
            folders: field(16)?,
            parent: field(20)?,
            modified_ns: i64::from_le_bytes(*head.get(24..)?.first_chunk()?),
            kind,
            executable: *head.get(33)? & 1 == 1,
            name,
            target,
        })
    }

    /// How many bytes the node that `bytes` begin with needs to be decoded, as far as it tells; at most 4390.
    pub fn needs(bytes: &[u8]) -> usize {
        let length = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk::<2>().copied());
        let lengths = [length(34), length(36)].map(|bytes| usize::from(bytes.map_or(0, u16::from_le_bytes)));
        NODE_BYTES + lengths[0].min(MAX_NAME) + lengths[1].min(MAX_TARGET)
    }

    /// Bytes from this node to the next one.
    pub fn stride(bytes: &[u8]) -> Option<usize> {
        let node = TreeNode::parse(bytes)?;
        if node.kind == TreeKind::Blank {
            return usize::try_from(u32::from_le_bytes(*bytes.get(36..)?.first_chunk()?)).ok();
        }
        Some(node_stride(node.name.len(), node.target.len()))
    }

    /// Adds the node's bytes to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            TreeKind::Blank => 0u8,
            TreeKind::Folder => 1,
            TreeKind::Record => 2,
            TreeKind::Link => 3,
        };
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let from = out.len();
        out.extend_from_slice(&[0; 4]);
        for field in [self.next, self.first, self.last, self.folders, self.parent] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.modified_ns.to_le_bytes());
        out.extend_from_slice(&[kind, u8::from(self.executable)]);
        out.extend_from_slice(&u16::try_from(self.name.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&len(self.target).to_le_bytes());
        out.extend_from_slice(self.name);
        out.extend_from_slice(self.target);
        seal(out, from);
        out.resize(from + node_stride(self.name.len(), self.target.len()), 0);
    }

    /// A node that says nothing and takes `stride` bytes, of which these are the first.
    pub fn blank(stride: u32) -> Vec<u8> {
        let mut bytes = vec![0; NODE_BYTES];
        bytes.iter_mut().skip(36).zip(stride.to_le_bytes()).for_each(|(to, from)| *to = from);
        seal(&mut bytes, 0);
        bytes
    }
}

fn seal(out: &mut [u8], from: usize) {
    let sum = checksum(out.get(from + FIXED_AT..).unwrap_or_default()).to_le_bytes();
    out.iter_mut().skip(from).zip(sum).for_each(|(to, from)| *to = from);
}

/// Whether a name is one that a file may have: it leads neither out of its folder nor nowhere.
pub fn is_file_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= MAX_NAME
        && !name.iter().any(|b| matches!(b, b'/' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node<'a>(kind: TreeKind, name: &'a [u8], target: &'a [u8]) -> TreeNode<'a> {
        TreeNode {
            next: 7,
            first: 8,
            last: 9,
            folders: 2,
            parent: 32,
            modified_ns: -5,
            kind,
            executable: true,
            name,
            target,
        }
    }

    #[test]
    fn nodes_go_both_ways_and_a_flipped_bit_of_what_is_fixed_spoils_them() {
        for (kind, name, target) in [
            (TreeKind::Folder, &b""[..], &b""[..]),
            (TreeKind::Record, b"a\n\xff.png", b""),
            (TreeKind::Link, &[b'x'; 255], &[b'y'; 4095]),
        ] {
            let node = node(kind, name, target);
            let mut bytes = Vec::new();
            node.write(&mut bytes);
            assert_eq!(TreeNode::parse(&bytes), Some(node));
            assert_eq!(TreeNode::stride(&bytes), Some(bytes.len()));
            assert_eq!(bytes.len() % 8, 0);
            assert_eq!(TreeNode::needs(&bytes[..NODE_BYTES]), NODE_BYTES + name.len() + target.len());
            for bit in FIXED_AT * 8..(NODE_BYTES + name.len() + target.len()) * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(TreeNode::parse(&bad), None, "bit {bit}");
            }
            for len in 0..NODE_BYTES + name.len() + target.len() {
                assert_eq!(TreeNode::parse(&bytes[..len]), None);
            }
        }
        let blank = TreeNode::blank(4096);
        assert_eq!(TreeNode::stride(&blank), Some(4096));
    }

    #[test]
    fn a_hostile_name_is_damage() {
        for name in [&b"."[..], b"..", b"a/b", b"a\0", b"/"] {
            let mut bytes = Vec::new();
            node(TreeKind::Record, name, b"").write(&mut bytes);
            assert_eq!(TreeNode::parse(&bytes), None, "{name:?}");
        }
        let mut bytes = Vec::new();
        node(TreeKind::Record, b"", b"").write(&mut bytes);
        assert_eq!(TreeNode::parse(&bytes), None);
    }

    #[test]
    fn headers_go_both_ways_and_the_extent_of_the_header_in_meta_counts() {
        let extent = |end, byte| TreeExtent { meta: [byte; 16], end, lookup: 3, lookup_bits: 9, entries: 3 };
        let header = TreeHeader {
            key: [9; 16],
            extents: [Some(extent(50, 1)), Some(extent(80, 2))],
            unfinished: true,
        };
        let bytes = header.to_bytes();
        assert_eq!(TreeHeader::parse(&bytes), Some(header));
        assert_eq!(header.extent_for(&[1; 16]).unwrap().end, 50);
        assert_eq!(header.extent_for(&[2; 16]).unwrap().end, 80);
        assert_eq!(header.extent_for(&[3; 16]).unwrap().end, 80);
        for bit in 64 * 8..128 * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(TreeHeader::parse(&bad).unwrap().extents, [None, header.extents[1]], "bit {bit}");
        }
        assert_eq!(TreeHeader::parse(&[0; TREE_HEADER_BYTES]), None);
    }
}
