//! Typed columns as Arrow's C data interface has them, so that an engine reads them without an object for each value.
//!
//! Table (table.rs) ──`__arrow_c_stream__`──▶ capsule with an ArrowArrayStream of one struct array ──▶ the engine
//!
//! The structs are those of https://arrow.apache.org/docs/format/CDataInterface.html and CStreamInterface.html. Whoever reads them
//! calls `release`; until then the columns stay, also after the table is gone.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Values of one type, none of them null.
pub enum Column {
    /// A bit each, the first one lowest.
    Booleans(Vec<u8>),
    Integers(Vec<i64>),
    Doubles(Vec<f64>),
    /// Where each text ends and the next one begins, and all texts.
    Texts(Vec<i64>, Vec<u8>),
}

impl Column {
    fn format(&self) -> &'static CStr {
        match self {
            Column::Booleans(_) => c"b",
            Column::Integers(_) => c"l",
            Column::Doubles(_) => c"g",
            Column::Texts(..) => c"U",
        }
    }

    /// The buffers; the first would say what is null.
    fn buffers(&self) -> Vec<*const c_void> {
        match self {
            Column::Booleans(bits) => vec![null(), bits.as_ptr().cast()],
            Column::Integers(numbers) => vec![null(), numbers.as_ptr().cast()],
            Column::Doubles(numbers) => vec![null(), numbers.as_ptr().cast()],
            Column::Texts(ends, texts) => vec![null(), ends.as_ptr().cast(), texts.as_ptr().cast()],
        }
    }
}

/// Columns of so many rows, by their names.
pub struct Columns {
    pub rows: usize,
    pub columns: Vec<(CString, Column)>,
}

#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArrayStream {
    get_schema: unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int,
    get_next: unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int,
    get_last_error: unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

// SAFETY: it is behind one pointer at a time, and what it points to (Columns, a flag) may go to any thread.
unsafe impl Send for ArrowArrayStream {}

/// What a stream still has: the columns, and whether they were read.
struct Stream {
    columns: Arc<Columns>,
    read: bool,
}

/// What a schema or an array keeps until its release.
struct Held<T> {
    children: Vec<*mut T>,
    buffers: Vec<*const c_void>,
    columns: Arc<Columns>,
}

/// A capsule with a stream of the columns: one array, and then no more.
pub fn capsule<'py>(py: Python<'py>, columns: &Arc<Columns>) -> PyResult<Bound<'py, PyCapsule>> {
    let stream = ArrowArrayStream {
        get_schema,
        get_next,
        get_last_error,
        release: Some(release_stream),
        private_data: Box::into_raw(Box::new(Stream { columns: columns.clone(), read: false })).cast(),
    };
    PyCapsule::new_with_destructor(py, stream, Some(c"arrow_array_stream".to_owned()), |mut stream, _| {
        // Who has taken the stream over has left None here.
        if let Some(release) = stream.release {
            // SAFETY: it was not released, and nobody else has it.
            unsafe { release(&mut stream) }
        }
    })
}

/// SAFETY (of all below): the caller keeps to the C interface, so pointers are valid and of structs that were made here.
unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    let columns = unsafe { &(*(*stream).private_data.cast::<Stream>()).columns };
    let children = columns
        .columns
        .iter()
        .map(|(name, column)| Box::into_raw(Box::new(schema(column.format(), Some(name), Vec::new(), columns))));
    let whole = schema(c"+s", None, children.collect(), columns);
    unsafe { out.write(whole) };
    0
}

fn schema(
    format: &'static CStr,
    name: Option<&CString>,
    children: Vec<*mut ArrowSchema>,
    columns: &Arc<Columns>,
) -> ArrowSchema {
    let held = Box::into_raw(Box::new(Held { children, buffers: Vec::new(), columns: columns.clone() }));
    // SAFETY: it was made a line above.
    let children = unsafe { &mut (*held).children };
    ArrowSchema {
        format: format.as_ptr(),
        name: name.map_or(c"".as_ptr(), |name| name.as_ptr()),
        metadata: null(),
        flags: 0,
        n_children: children.len() as i64,
        children: children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_schema),
        private_data: held.cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    unsafe {
        let held = Box::from_raw((*schema).private_data.cast::<Held<ArrowSchema>>());
        for &child in &held.children {
            // A child that was moved elsewhere has left None here.
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        (*schema).release = None;
    }
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    let stream = unsafe { &mut *(*stream).private_data.cast::<Stream>() };
    let columns = &stream.columns;
    let children =
        columns.columns.iter().map(|(_, column)| Box::into_raw(Box::new(array(column.buffers(), Vec::new(), columns))));
    let mut whole = array(vec![null()], if stream.read { Vec::new() } else { children.collect() }, columns);
    if stream.read {
        // An array that is released says that there are no more.
        unsafe { release_array(&mut whole) };
    }
    stream.read = true;
    unsafe { out.write(whole) };
    0
}

fn array(buffers: Vec<*const c_void>, children: Vec<*mut ArrowArray>, columns: &Arc<Columns>) -> ArrowArray {
    let held = Box::into_raw(Box::new(Held { children, buffers, columns: columns.clone() }));
    // SAFETY: it was made a line above.
    let Held { children, buffers, columns } = unsafe { &mut *held };
    ArrowArray {
        length: columns.rows as i64,
        null_count: 0,
        offset: 0,
        n_buffers: buffers.len() as i64,
        n_children: children.len() as i64,
        buffers: buffers.as_mut_ptr(),
        children: children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_array),
        private_data: held.cast(),
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    unsafe {
        let held = Box::from_raw((*array).private_data.cast::<Held<ArrowArray>>());
        for &child in &held.children {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        (*array).release = None;
    }
}

/// No call fails.
unsafe extern "C" fn get_last_error(_: *mut ArrowArrayStream) -> *const c_char {
    null()
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Stream>()));
        (*stream).release = None;
    }
}
