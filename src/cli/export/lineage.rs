//! The folders that lead to a node, checked: names may come from anybody who made the store.

use zrfs::store::{NamedNode, NodeId, NodeKind};
use zrfs::{Error, ErrorKind, Result};

use super::super::names::Quoted;

/// Longest path that can be opened by its name, in bytes. It bounds the depth of a tree, too: no walk goes round for ever,
/// and who removes the tree can do that.
const MAX_PATH: usize = 4095;

/// Where nodes are looked up.
pub(super) trait Nodes {
    /// What is known of a node; `None` where it is gone.
    fn node(&self, id: NodeId) -> Result<Option<NamedNode>>;
}

/// Refuses what is no name of a file in a folder, but leads out of it, or nowhere.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        let text = format!("the store names a file {}, which leads out of its folder", Quoted(name));
        return Err(Error::new(ErrorKind::Unsupported, text)
            .with_help("nothing was exported; who made the store may mean harm"));
    }
    Ok(())
}

/// The folders from the one below the root to `id`; none for the root. Each has a name that is one.
///
/// # Errors
/// [`ErrorKind::Damaged`] where one of them is lost or is no folder, or where they lead too far; as for [`check_name`].
pub(super) fn of(nodes: &dyn Nodes, id: NodeId) -> Result<Vec<NamedNode>> {
    let mut found = Vec::new();
    let (mut at, mut len) = (id, 0);
    while at != NodeId::ROOT {
        let folder = nodes.node(at)?.filter(|node| matches!(node.kind, NodeKind::Folder { .. }));
        let folder = folder.ok_or_else(|| damaged("a folder that leads to a record is lost"))?;
        check_name(&folder.name)?;
        len += folder.name.len() + 1;
        if len > MAX_PATH {
            return Err(damaged("a folder has a path longer than 4095 bytes"));
        }
        at = folder.parent;
        found.push(folder);
    }
    found.reverse();
    Ok(found)
}

fn damaged(text: &str) -> Error {
    Error::new(ErrorKind::Damaged, format!("the names of the store are damaged: {text}"))
        .with_help("`zrfs verify` says more")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    impl Nodes for Vec<NamedNode> {
        fn node(&self, id: NodeId) -> Result<Option<NamedNode>> {
            Ok(self.iter().find(|node| node.id == id).cloned())
        }
    }

    pub(in super::super) fn folder(id: u32, parent: u32, name: &[u8]) -> NamedNode {
        NamedNode {
            id: NodeId::from_number(id),
            parent: NodeId::from_number(parent),
            name: name.to_vec(),
            modified_ns: 0,
            kind: NodeKind::Folder { folders: 0 },
        }
    }

    fn of_nodes(nodes: &Vec<NamedNode>, id: u32) -> Result<Vec<Vec<u8>>> {
        Ok(of(nodes, NodeId::from_number(id))?.into_iter().map(|node| node.name).collect())
    }

    #[test]
    fn folders_come_from_the_root_on() {
        let nodes = vec![folder(40, 32, b"a"), folder(41, 40, b"..."), folder(42, 41, b"\xff -rf")];
        assert_eq!(of_nodes(&nodes, 42).unwrap(), [&b"a"[..], b"...", b"\xff -rf"]);
        assert_eq!(of_nodes(&nodes, 32).unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn hostile_names_are_refused_wherever_they_stand() {
        for name in [&b""[..], b".", b"..", b"/", b"/etc", b"a/b", b"../a", b"a\0"] {
            assert!(check_name(name).is_err(), "{name:?}");
            for [upper, lower] in [[name, b"a"], [b"a", name]] {
                let nodes = vec![folder(40, 32, upper), folder(41, 40, lower)];
                assert_eq!(of_nodes(&nodes, 41).unwrap_err().kind(), ErrorKind::Unsupported, "{name:?}");
            }
        }
    }

    #[test]
    fn folders_that_lead_nowhere_or_in_a_circle_are_damage() {
        let mut record = folder(40, 32, b"a");
        record.kind = NodeKind::Record { index: 0, executable: false };
        let mut deep: Vec<_> = (41..5000).map(|id| folder(id, id - 1, b"a")).collect();
        deep.push(folder(40, 32, b"a"));
        for (nodes, id) in [
            (vec![], 40),
            (vec![folder(41, 40, b"a")], 41),
            (vec![folder(41, 40, b"a"), record], 41),
            (vec![folder(40, 41, b"a"), folder(41, 40, b"b")], 41),
            (vec![folder(40, 40, b"a")], 40),
            (deep.clone(), 4999),
        ] {
            assert_eq!(of_nodes(&nodes, id).unwrap_err().kind(), ErrorKind::Damaged);
        }
        assert_eq!(of_nodes(&deep, 40 + 2046).unwrap().len(), 2047);
    }
}
