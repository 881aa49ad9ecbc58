//! Memory: for results, for tables, and the hashing that tables need.

pub mod buffer_pool;
pub mod huge_pages;
pub mod keyed_hash;
pub mod prefetch;
pub mod zeroed_table;
