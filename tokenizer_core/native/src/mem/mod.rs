//! What results and tables are made of: memory, prefetching, hashing, and the form of
//! compiled files.

pub mod buffer_pool;
pub mod growth;
pub mod hash;
pub mod huge_pages;
pub mod image;
pub mod prefetch;
pub mod sections;
pub mod table;
pub mod zeroed;
