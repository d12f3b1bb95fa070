//! Things that all of the store does with its database: waiting while it is busy, ids and times of rows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::ErrorCode;

use crate::id::new_id;

/// How long a write waits for another process's.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How often it tries meanwhile.
pub(super) const AGAIN: Duration = Duration::from_millis(5);

/// Milliseconds of Unix time.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    i64::try_from(since).unwrap_or(i64::MAX)
}

/// An id for a row.
pub(super) fn row_id(of: &str) -> rusqlite::Result<String> {
    new_id(of).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
