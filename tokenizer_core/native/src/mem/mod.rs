//! Memory: for results, for tables, and the hashing that tables need.

pub mod buffer_pool;
pub mod hash;
pub mod huge_pages;
pub mod prefetch;
pub mod zeroed;
