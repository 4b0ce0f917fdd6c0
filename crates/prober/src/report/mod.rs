//! Results for people: a table, and a page.

mod page;
mod table;

pub use page::html;
pub use table::table;
