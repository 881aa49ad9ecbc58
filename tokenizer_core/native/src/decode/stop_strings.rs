//! Strings that end a text, searched in a text that arrives in parts (Aho and Corasick).
//!
//! The node after a text is the longest end of it that begins a string. Its depth is therefore
//! exactly what must be held back.

use std::collections::VecDeque;

/// The node of an empty text.
pub const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

/// UTF-8 bytes of the strings of one set; `streaming.MAX_STOP_BYTES` in Python.
pub const MAX_BYTES: usize = 1 << 16;

struct Node {
    /// Sorted by byte; the edges of the root are in a table.
    edges: Vec<(u8, u32)>,
    /// The node of the longest proper end that has one.
    shorter: u32,
    depth: u32,
    /// The longest string that ends here.
    found: u32,
}

/// Some strings, none of them empty.
pub struct StopStrings {
    strings: Vec<String>,
    nodes: Vec<Node>,
    first: [u32; 256],
}

impl StopStrings {
    /// None if a string is empty, or if they have more than `MAX_BYTES`.
    pub fn new(strings: Vec<String>) -> Option<StopStrings> {
        let n_bytes: usize = strings.iter().map(String::len).sum();
        if n_bytes > MAX_BYTES || strings.iter().any(String::is_empty) {
            return None;
        }
        let mut stops = StopStrings {
            strings,
            nodes: vec![Node::new(0)],
            first: [ROOT; 256],
        };
        stops.add_nodes();
        stops.link();
        Some(stops)
    }

    pub fn strings(&self) -> &[String] {
        &self.strings
    }

    /// Bytes at the end of the text that may begin a string.
    #[inline]
    pub fn depth(&self, node: u32) -> usize {
        self.nodes[node as usize].depth as usize
    }

    /// The index of the longest string that ends at a node.
    #[inline]
    pub fn found(&self, node: u32) -> Option<usize> {
        let found = self.nodes[node as usize].found;
        (found != NONE).then_some(found as usize)
    }

    /// The node after one more byte.
    #[inline]
    pub fn next(&self, mut node: u32, byte: u8) -> u32 {
        while node != ROOT {
            if let Some(next) = self.nodes[node as usize].edge(byte) {
                return next;
            }
            node = self.nodes[node as usize].shorter;
        }
        self.first[usize::from(byte)]
    }

    fn add_nodes(&mut self) {
        for (index, string) in self.strings.iter().enumerate() {
            let mut node = ROOT;
            for (depth, byte) in (1..).zip(string.bytes()) {
                let known = match node {
                    ROOT => Some(self.first[usize::from(byte)]).filter(|&next| next != ROOT),
                    _ => self.nodes[node as usize].edge(byte),
                };
                node = known.unwrap_or_else(|| {
                    let new = self.nodes.len() as u32;
                    self.nodes.push(Node::new(depth));
                    if node == ROOT {
                        self.first[usize::from(byte)] = new;
                    } else {
                        self.nodes[node as usize].insert(byte, new);
                    }
                    new
                });
            }
            let end = &mut self.nodes[node as usize];
            end.found = end.found.min(index as u32);
        }
    }

    /// Links each node to the longest shorter one, in order of depth.
    fn link(&mut self) {
        let firsts = self.first.iter().copied().filter(|&node| node != ROOT);
        let mut due: VecDeque<u32> = firsts.collect();
        while let Some(node) = due.pop_front() {
            let shorter = self.nodes[node as usize].shorter;
            if self.nodes[node as usize].found == NONE {
                self.nodes[node as usize].found = self.nodes[shorter as usize].found;
            }
            for index in 0..self.nodes[node as usize].edges.len() {
                let (byte, next) = self.nodes[node as usize].edges[index];
                self.nodes[next as usize].shorter = self.next(shorter, byte);
                due.push_back(next);
            }
        }
    }
}

impl Node {
    fn new(depth: u32) -> Node {
        Node {
            edges: Vec::new(),
            shorter: ROOT,
            depth,
            found: NONE,
        }
    }

    #[inline]
    fn edge(&self, byte: u8) -> Option<u32> {
        let at = self.edges.binary_search_by_key(&byte, |edge| edge.0).ok()?;
        Some(self.edges[at].1)
    }

    fn insert(&mut self, byte: u8, next: u32) {
        let at = self.edges.partition_point(|edge| edge.0 < byte);
        self.edges.insert(at, (byte, next));
    }
}
