/* The compiled kernel: record batches to Arrow columns and back. `columns_pure.py` says the same in Python, and
 * the tests hold both to it; the layouts are described in `record.py` and `arrow_layout.py`.
 *
 * Every byte of a batch is untrusted. A cursor never passes the end of its record, lengths are compared with
 * what is left before they are used, and buffers have room for all that a body of its size can hold before the
 * loop begins, so that the loop itself allocates nothing and runs without the interpreter's lock.
 */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { KEY = 1, VALUE = 2, OFFSET = 4, TIMESTAMP = 8, HEADERS = 16 };

enum {
    HEADER_SIZE = 61,
    LOG_APPEND_TIME_BIT = 1 << 3,
    /* Length, attributes, two deltas, two lengths, header count: one byte each. */
    MIN_RECORD_SIZE = 7,
    MIN_HEADER_SIZE = 2,
    NO_TIMESTAMP = -1,
};

static PyObject *CorruptBatch, *InvalidRecord, *InvalidTimestamp, *RecordTooLarge;

/* ---- growing buffers: bytearrays, because those can be handed over without a copy ---- */

typedef struct {
    PyObject *owner;
    char *at;
    Py_ssize_t used, room;
} Buffer;

static int buffer_reserve(Buffer *buffer, Py_ssize_t more)
{
    if (buffer->owner && more <= buffer->room - buffer->used)
        return 0;
    if (more > PY_SSIZE_T_MAX / 2 - buffer->used) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t room = buffer->used + more, roomy = buffer->room + buffer->room / 2;
    if (room < roomy)
        room = roomy;
    if (!buffer->owner) {
        buffer->owner = PyByteArray_FromStringAndSize(NULL, room);
        if (!buffer->owner)
            return -1;
    } else if (PyByteArray_Resize(buffer->owner, room) < 0) {
        return -1;
    }
    buffer->at = PyByteArray_AsString(buffer->owner);
    buffer->room = room;
    return 0;
}

static PyObject *buffer_take(Buffer *buffer)
{
    if (buffer_reserve(buffer, 0) < 0 || PyByteArray_Resize(buffer->owner, buffer->used) < 0)
        return NULL;
    PyObject *owner = buffer->owner;
    *buffer = (Buffer){0};
    return owner;
}

static void buffer_clear(Buffer *buffer)
{
    Py_CLEAR(buffer->owner);
    *buffer = (Buffer){0};
}

typedef struct {
    Buffer offsets, data, validity;
    Py_ssize_t rows, nulls;
} Binary;

static int binary_reserve(Binary *column, Py_ssize_t rows, Py_ssize_t size)
{
    column->offsets.used = column->rows * 4;
    column->validity.used = column->rows / 8;
    if (buffer_reserve(&column->offsets, rows * 4 + 4) < 0 || buffer_reserve(&column->data, size) < 0 ||
        buffer_reserve(&column->validity, rows / 8 + 2) < 0)
        return -1;
    if (!column->rows)
        memset(column->offsets.at, 0, 4);
    return 0;
}

static inline void int32_put(Buffer *buffer, Py_ssize_t index, int32_t number)
{
    memcpy(buffer->at + index * 4, &number, 4);
}

static inline int32_t int32_get(const Buffer *buffer, Py_ssize_t index)
{
    int32_t number;
    memcpy(&number, buffer->at + index * 4, 4);
    return number;
}

/* A negative size is a null. There is room. */
static inline void binary_put(Binary *column, const uint8_t *data, int32_t size)
{
    Py_ssize_t row = column->rows++;
    int bit = row & 7;
    uint8_t *byte = (uint8_t *)column->validity.at + (row >> 3);
    uint8_t before = bit ? *byte & ((1 << bit) - 1) : 0;
    if (size < 0) {
        column->nulls++;
        *byte = before;
    } else {
        *byte = before | 1 << bit;
        memcpy(column->data.at + column->data.used, data, size);
        column->data.used += size;
    }
    int32_put(&column->offsets, row + 1, (int32_t)column->data.used);
}

static void binary_clear(Binary *column)
{
    buffer_clear(&column->offsets);
    buffer_clear(&column->data);
    buffer_clear(&column->validity);
}

static PyObject *binary_take(Binary *column)
{
    if (binary_reserve(column, 0, 0) < 0)
        return NULL; /* Nothing was taken: the next call may try again. */
    column->offsets.used = column->rows * 4 + 4;
    column->validity.used = (column->rows + 7) / 8;
    PyObject *validity = NULL, *offsets = NULL, *data = NULL, *taken = NULL;
    if (column->nulls) {
        validity = buffer_take(&column->validity);
    } else {
        validity = Py_NewRef(Py_None);
        buffer_clear(&column->validity);
    }
    offsets = buffer_take(&column->offsets);
    data = buffer_take(&column->data);
    if (validity && offsets && data)
        taken = PyTuple_Pack(3, offsets, data, validity);
    Py_XDECREF(validity);
    Py_XDECREF(offsets);
    Py_XDECREF(data);
    if (!taken)
        binary_clear(column);
    column->rows = column->nulls = 0;
    return taken;
}

/* ---- reading records ---- */

typedef enum { FINE, CUT_OFF, TOO_LONG, MALFORMED, BAD_LENGTH, BAD_HEADERS, BAD_TIME, TRAILING } Verdict;

static const char *const VERDICTS[] = {
    [FINE] = "",
    [CUT_OFF] = "records are cut off",
    [TOO_LONG] = "variable-length integer is too long",
    [MALFORMED] = "a record is malformed",
    [BAD_LENGTH] = "a record has a field of negative length",
    [BAD_HEADERS] = "a record's headers are malformed",
    [BAD_TIME] = "a timestamp exceeds 64 bits",
    [TRAILING] = "bytes follow the last record, or the count is negative",
};

typedef struct {
    const uint8_t *at, *end;
} Cursor;

static Verdict read_long_number(Cursor *cursor, int max_bytes, uint64_t max_raw, int64_t *number)
{
    uint64_t raw = 0;
    for (int i = 0; i < max_bytes; i++) {
        if (cursor->at == cursor->end)
            return CUT_OFF;
        uint8_t byte = *cursor->at++;
        /* Of the tenth byte only the lowest bit fits. */
        if (i == 9 && (byte & 0x7E))
            return TOO_LONG;
        raw |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80) {
            if (raw > max_raw)
                return TOO_LONG;
            *number = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return FINE;
        }
    }
    return TOO_LONG;
}

static inline Verdict read_varint(Cursor *cursor, int32_t *number)
{
    if (cursor->at != cursor->end && *cursor->at < 0x80) {
        uint8_t raw = *cursor->at++;
        *number = (raw >> 1) ^ -(raw & 1);
        return FINE;
    }
    int64_t wide = 0;
    Verdict verdict = read_long_number(cursor, 5, UINT32_MAX, &wide);
    *number = (int32_t)wide;
    return verdict;
}

/* Bytes that say their length first; a length of -1 is null. */
static inline Verdict read_bytes(Cursor *cursor, const uint8_t **data, int32_t *size)
{
    Verdict verdict = read_varint(cursor, size);
    if (verdict != FINE)
        return verdict;
    if (*size < -1)
        return BAD_LENGTH;
    *data = cursor->at;
    if (*size > 0) {
        if (*size > cursor->end - cursor->at)
            return CUT_OFF;
        cursor->at += *size;
    }
    return FINE;
}

typedef struct {
    PyObject_HEAD
    int wanted;
    bool busy;
    Py_ssize_t rows;
    Binary key, value, header_key, header_value;
    Buffer offsets, timestamps, lists;
} Decoder;

typedef struct {
    long long base_offset, base_timestamp, max_timestamp, first, end;
    int attributes, last_delta, count;
} Order;

static Verdict read_headers(Decoder *self, Cursor *cursor, bool keep, bool *odd)
{
    int32_t count;
    Verdict verdict = read_varint(cursor, &count);
    if (verdict != FINE)
        return verdict;
    if (count < 0 || count > (cursor->end - cursor->at) / MIN_HEADER_SIZE)
        return BAD_HEADERS;
    for (int32_t i = 0; i < count; i++) {
        const uint8_t *key, *value;
        int32_t key_size, value_size;
        if ((verdict = read_bytes(cursor, &key, &key_size)) != FINE)
            return verdict;
        if (key_size < 0)
            return BAD_HEADERS;
        if ((verdict = read_bytes(cursor, &value, &value_size)) != FINE)
            return verdict;
        if (keep) {
            uint8_t bits = 0;
            for (int32_t j = 0; j < key_size; j++)
                bits |= key[j];
            *odd |= bits >= 0x80;
            binary_put(&self->header_key, key, key_size);
            binary_put(&self->header_value, value, value_size);
        }
    }
    return FINE;
}

static inline int64_t microseconds(int64_t ms)
{
    if (ms > INT64_MAX / 1000)
        return INT64_MAX;
    return ms < INT64_MIN / 1000 ? INT64_MIN : ms * 1000;
}

static Verdict read_body(Decoder *self, Cursor body, const Order *order, bool *odd)
{
    const int wanted = self->wanted;
    const bool fixed_time = order->attributes & LOG_APPEND_TIME_BIT;
    int64_t next_delta = 0;
    Verdict verdict;
    for (int i = 0; i < order->count; i++) {
        int32_t length, delta, key_size, value_size;
        int64_t time;
        const uint8_t *key, *value;
        if ((verdict = read_varint(&body, &length)) != FINE)
            return verdict;
        if (length < 1 || length > body.end - body.at)
            return CUT_OFF;
        Cursor record = {body.at + 1, body.at + length};
        body.at = record.end;
        if ((verdict = read_long_number(&record, 10, UINT64_MAX, &time)) != FINE ||
            (verdict = read_varint(&record, &delta)) != FINE)
            return verdict;
        if (fixed_time) {
            time = order->max_timestamp;
        } else if (time > 0 ? order->base_timestamp > INT64_MAX - time
                            : order->base_timestamp < INT64_MIN - time) {
            return BAD_TIME;
        } else {
            time += order->base_timestamp;
        }
        if (delta < next_delta || delta > order->last_delta)
            return MALFORMED;
        next_delta = (int64_t)delta + 1;
        if ((verdict = read_bytes(&record, &key, &key_size)) != FINE ||
            (verdict = read_bytes(&record, &value, &value_size)) != FINE)
            return verdict;
        /* Unsigned, so that it wraps where a header lies instead of being undefined. */
        int64_t offset = (int64_t)((uint64_t)order->base_offset + (uint64_t)delta);
        bool keep = order->first <= offset && offset < order->end;
        if ((verdict = read_headers(self, &record, keep && wanted & HEADERS, odd)) != FINE)
            return verdict;
        if (record.at != record.end)
            return MALFORMED;
        if (!keep)
            continue;
        Py_ssize_t row = self->rows++;
        if (wanted & KEY)
            binary_put(&self->key, key, key_size);
        if (wanted & VALUE)
            binary_put(&self->value, value, value_size);
        if (wanted & OFFSET)
            memcpy(self->offsets.at + row * 8, &offset, 8);
        if (wanted & TIMESTAMP) {
            time = microseconds(time);
            memcpy(self->timestamps.at + row * 8, &time, 8);
        }
        if (wanted & HEADERS)
            int32_put(&self->lists, row + 1, (int32_t)self->header_key.rows);
    }
    return body.at != body.end || order->count < 0 ? TRAILING : FINE;
}

static int decoder_reserve(Decoder *self, Py_ssize_t rows, Py_ssize_t size)
{
    const int wanted = self->wanted;
    self->offsets.used = self->timestamps.used = self->rows * 8;
    self->lists.used = self->rows * 4;
    if (self->key.data.used > INT32_MAX - size || self->value.data.used > INT32_MAX - size ||
        self->header_key.data.used > INT32_MAX - size || self->header_value.data.used > INT32_MAX - size ||
        self->rows > INT32_MAX - size || self->header_key.rows > INT32_MAX - size) {
        PyErr_SetString(PyExc_OverflowError, "the columns are full; take them before you append more");
        return -1;
    }
    if ((wanted & KEY && binary_reserve(&self->key, rows, size) < 0) ||
        (wanted & VALUE && binary_reserve(&self->value, rows, size) < 0) ||
        (wanted & OFFSET && buffer_reserve(&self->offsets, rows * 8) < 0) ||
        (wanted & TIMESTAMP && buffer_reserve(&self->timestamps, rows * 8) < 0))
        return -1;
    if (wanted & HEADERS) {
        Py_ssize_t headers = size / MIN_HEADER_SIZE;
        if (binary_reserve(&self->header_key, headers, size) < 0 ||
            binary_reserve(&self->header_value, headers, size) < 0 ||
            buffer_reserve(&self->lists, rows * 4 + 4) < 0)
            return -1;
        if (!self->rows)
            memset(self->lists.at, 0, 4);
    }
    return 0;
}

/* Header keys from `row` on as Python decodes them, with replacement characters where they are not UTF-8. */
static int repair_keys(Binary *column, Py_ssize_t row)
{
    Py_ssize_t kept = int32_get(&column->offsets, row), begin = kept;
    Buffer repaired = {0};
    for (; row < column->rows; row++) {
        Py_ssize_t end = int32_get(&column->offsets, row + 1), size = 0;
        PyObject *text = PyUnicode_DecodeUTF8(column->data.at + begin, end - begin, "replace");
        const char *encoded = text ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
        if (!encoded || buffer_reserve(&repaired, size) < 0) {
            Py_XDECREF(text);
            goto failed;
        }
        memcpy(repaired.at + repaired.used, encoded, size);
        repaired.used += size;
        Py_DECREF(text);
        if (repaired.used > INT32_MAX - kept) {
            PyErr_SetString(PyExc_OverflowError, "the columns are full; take them before you append more");
            goto failed;
        }
        int32_put(&column->offsets, row + 1, (int32_t)(kept + repaired.used));
        begin = end;
    }
    column->data.used = kept;
    if (buffer_reserve(&column->data, repaired.used) < 0)
        goto failed;
    if (repaired.used)
        memcpy(column->data.at + kept, repaired.at, repaired.used);
    column->data.used += repaired.used;
    buffer_clear(&repaired);
    return 0;
failed:
    buffer_clear(&repaired);
    return -1;
}

typedef struct {
    Py_ssize_t rows, size, nulls;
} Mark;

static Mark binary_mark(const Binary *column)
{
    return (Mark){column->rows, column->data.used, column->nulls};
}

static void binary_return(Binary *column, Mark mark)
{
    column->rows = mark.rows;
    column->data.used = mark.size;
    column->nulls = mark.nulls;
}

static bool decoder_is_busy(Decoder *self)
{
    if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread is using this decoder; give each its own");
    return self->busy;
}

static PyObject *decoder_append(Decoder *self, PyObject *args)
{
    Py_buffer body;
    PyObject *header;
    Order order;
    long long length, producer_id;
    int leader_epoch, magic, producer_epoch, sequence;
    unsigned int crc;
    if (!PyArg_ParseTuple(args, "y*O!LL:append", &body, &PyTuple_Type, &header, &order.first, &order.end))
        return NULL;
    if (decoder_is_busy(self) ||
        !PyArg_ParseTuple(header, "LLiiIiiLLLiii:header", &order.base_offset, &length, &leader_epoch, &magic,
                          &crc, &order.attributes, &order.last_delta, &order.base_timestamp,
                          &order.max_timestamp, &producer_id, &producer_epoch, &sequence, &order.count)) {
        PyBuffer_Release(&body);
        return NULL;
    }
    Py_ssize_t rows = body.len / MIN_RECORD_SIZE;
    if (order.count < rows)
        rows = order.count < 0 ? 0 : order.count;
    if (decoder_reserve(self, rows, body.len) < 0) {
        PyBuffer_Release(&body);
        return NULL;
    }
    Py_ssize_t rows_before = self->rows;
    Mark key = binary_mark(&self->key), value = binary_mark(&self->value);
    Mark header_key = binary_mark(&self->header_key), header_value = binary_mark(&self->header_value);
    Cursor cursor = {body.buf, (const uint8_t *)body.buf + body.len};
    bool odd = false;
    Verdict verdict;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS
    verdict = read_body(self, cursor, &order, &odd);
    Py_END_ALLOW_THREADS
    if (verdict != FINE)
        PyErr_SetString(CorruptBatch, VERDICTS[verdict]);
    bool failed = verdict != FINE || (odd && repair_keys(&self->header_key, header_key.rows) < 0);
    if (failed) {
        self->rows = rows_before;
        binary_return(&self->key, key);
        binary_return(&self->value, value);
        binary_return(&self->header_key, header_key);
        binary_return(&self->header_value, header_value);
    }
    self->busy = false;
    PyBuffer_Release(&body);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *decoder_take_headers(Decoder *self)
{
    PyObject *keys = binary_take(&self->header_key), *values = binary_take(&self->header_value);
    self->lists.used = self->rows * 4 + 4;
    PyObject *lists = buffer_take(&self->lists), *taken = NULL;
    if (keys && values && lists)
        taken = PyTuple_Pack(3, lists, keys, values);
    Py_XDECREF(keys);
    Py_XDECREF(values);
    Py_XDECREF(lists);
    return taken;
}

static PyObject *decoder_take(Decoder *self, PyObject *Py_UNUSED(ignored))
{
    if (decoder_is_busy(self) || decoder_reserve(self, 0, 0) < 0)
        return NULL;
    const int wanted = self->wanted;
    PyObject *taken = NULL;
    self->offsets.used = self->timestamps.used = self->rows * 8;
    PyObject *parts[6] = {
        PyLong_FromSsize_t(self->rows),
        wanted & KEY ? binary_take(&self->key) : Py_NewRef(Py_None),
        wanted & VALUE ? binary_take(&self->value) : Py_NewRef(Py_None),
        wanted & OFFSET ? buffer_take(&self->offsets) : Py_NewRef(Py_None),
        wanted & TIMESTAMP ? buffer_take(&self->timestamps) : Py_NewRef(Py_None),
        wanted & HEADERS ? decoder_take_headers(self) : Py_NewRef(Py_None),
    };
    self->rows = 0;
    if (parts[0] && parts[1] && parts[2] && parts[3] && parts[4] && parts[5])
        taken = PyTuple_Pack(6, parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]);
    for (int i = 0; i < 6; i++)
        Py_XDECREF(parts[i]);
    return taken;
}

static int decoder_init(Decoder *self, PyObject *args, PyObject *kwargs)
{
    int wanted;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Decoder takes no keyword arguments");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "i:Decoder", &wanted))
        return -1;
    /* A second call would change what the buffers were sized for. */
    if (self->rows || self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "the decoder is in use");
        return -1;
    }
    self->wanted = wanted;
    return 0;
}

static void decoder_dealloc(Decoder *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    binary_clear(&self->key);
    binary_clear(&self->value);
    binary_clear(&self->header_key);
    binary_clear(&self->header_value);
    buffer_clear(&self->offsets);
    buffer_clear(&self->timestamps);
    buffer_clear(&self->lists);
    release(self);
    Py_DECREF(type);
}

static PyObject *decoder_rows(Decoder *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(self->rows);
}

static PyObject *decoder_bytes(Decoder *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(self->key.data.used + self->value.data.used + self->header_key.data.used +
                              self->header_value.data.used);
}

static PyMethodDef decoder_methods[] = {
    {"append", (PyCFunction)decoder_append, METH_VARARGS,
     "The records of one decompressed batch with first <= offset < end; all of them or, on an error, none."},
    {"take", (PyCFunction)decoder_take, METH_NOARGS,
     "Rows, key, value, offsets, timestamps, headers; then the decoder is empty."},
    {0},
};

static PyGetSetDef decoder_attributes[] = {
    {"rows", (getter)decoder_rows, NULL, "How many rows there are.", NULL},
    {"bytes", (getter)decoder_bytes, NULL, "The size of keys, values and headers.", NULL},
    {0},
};

static PyType_Slot decoder_slots[] = {
    {Py_tp_doc, "Collects the wanted columns of many batches."},
    {Py_tp_init, decoder_init},
    {Py_tp_dealloc, decoder_dealloc},
    {Py_tp_methods, decoder_methods},
    {Py_tp_getset, decoder_attributes},
    {0},
};

static PyType_Spec decoder_spec = {
    .name = "posthouse.records._columns.Decoder",
    .basicsize = sizeof(Decoder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = decoder_slots,
};

/* ---- reading columns: their numbers are checked too, since any buffer may be given ---- */

typedef struct {
    Py_buffer offsets, validity;
    Py_ssize_t start;
    int wide;
} Spans;

typedef struct {
    Spans spans;
    Py_buffer data;
} Column;

static void spans_close(Spans *spans)
{
    PyBuffer_Release(&spans->offsets);
    PyBuffer_Release(&spans->validity);
}

static void column_close(Column *column)
{
    spans_close(&column->spans);
    PyBuffer_Release(&column->data);
}

/* What parsing could not do; the caller closes the spans also after a failure. */
static int spans_open(Spans *spans, PyObject *validity)
{
    if (spans->start < 0 || spans->start > PY_SSIZE_T_MAX / 16) {
        PyErr_SetString(PyExc_ValueError, "a column starts at a row that cannot be");
        return -1;
    }
    return validity == Py_None ? 0 : PyObject_GetBuffer(validity, &spans->validity, PyBUF_SIMPLE);
}

/* None leaves the column closed: all rows are null then. */
static int column_open(Column *column, PyObject *source)
{
    PyObject *validity;
    memset(column, 0, sizeof *column);
    if (source == Py_None)
        return 0;
    if (!PyTuple_Check(source)) {
        PyErr_SetString(PyExc_TypeError, "a column is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(source, "y*y*Onp:column", &column->spans.offsets, &column->data, &validity,
                          &column->spans.start, &column->spans.wide)) {
        memset(column, 0, sizeof *column);
        return -1;
    }
    if (spans_open(&column->spans, validity) < 0) {
        column_close(column);
        return -1;
    }
    return 0;
}

static int out_of_range(void)
{
    PyErr_SetString(PyExc_IndexError, "a row lies outside its column's buffers");
    return -1;
}

/* 1: not null, 0: null, -1: error. */
static inline int span_of(const Spans *spans, int64_t row, int64_t limit, int64_t *begin, int64_t *end)
{
    if (!spans->offsets.obj)
        return 0;
    if (row < 0 || row > PY_SSIZE_T_MAX / 16)
        return out_of_range();
    row += spans->start;
    if (spans->validity.obj) {
        if (row / 8 >= spans->validity.len)
            return out_of_range();
        if (!(((const uint8_t *)spans->validity.buf)[row / 8] >> (row & 7) & 1))
            return 0;
    }
    if (row + 2 > spans->offsets.len / (spans->wide ? 8 : 4))
        return out_of_range();
    if (spans->wide) {
        memcpy(begin, (const char *)spans->offsets.buf + row * 8, 8);
        memcpy(end, (const char *)spans->offsets.buf + row * 8 + 8, 8);
    } else {
        int32_t pair[2];
        memcpy(pair, (const char *)spans->offsets.buf + row * 4, 8);
        *begin = pair[0];
        *end = pair[1];
    }
    if (*begin < 0 || *end < *begin || *end > limit)
        return out_of_range();
    return 1;
}

/* The size is -1 for null. */
static inline int column_get(const Column *column, int64_t row, const uint8_t **data, int64_t *size)
{
    int64_t begin, end;
    int is = span_of(&column->spans, row, column->data.len, &begin, &end);
    if (is < 0)
        return -1;
    *data = is ? (const uint8_t *)column->data.buf + begin : NULL;
    *size = is ? end - begin : -1;
    return 0;
}

/* ---- writing records ---- */

typedef struct {
    Column key, value, header_keys, header_values;
    Spans lists;
    Py_buffer timestamps, rows;
} Source;

static inline uint64_t zigzag(int64_t number)
{
    return (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
}

static inline int number_size(int64_t number)
{
    uint64_t raw = zigzag(number);
    int size = 1;
    for (; raw > 0x7F; raw >>= 7)
        size++;
    return size;
}

static inline uint8_t *write_number(uint8_t *out, int64_t number)
{
    uint64_t raw = zigzag(number);
    for (; raw > 0x7F; raw >>= 7)
        *out++ = (uint8_t)raw | 0x80;
    *out++ = (uint8_t)raw;
    return out;
}

static inline int64_t bytes_size(int64_t size)
{
    return number_size(size) + (size > 0 ? size : 0);
}

static inline uint8_t *write_bytes(uint8_t *out, const uint8_t *data, int64_t size)
{
    out = write_number(out, size);
    if (size <= 0)
        return out;
    memcpy(out, data, size);
    return out + size;
}

static int row_time(const Source *source, int32_t row, int64_t *ms)
{
    int64_t us;
    if (row < 0 || row >= source->timestamps.len / 8)
        return out_of_range();
    memcpy(&us, (const char *)source->timestamps.buf + (Py_ssize_t)row * 8, 8);
    *ms = us / 1000 - (us % 1000 < 0);
    if (*ms < NO_TIMESTAMP) {
        PyErr_Format(InvalidTimestamp, "timestamp %lld", (long long)*ms);
        return -1;
    }
    return 0;
}

/* The size of a record without its own length, or -1. */
static int64_t record_size(const Source *source, int32_t row, int64_t time_delta, int64_t offset_delta)
{
    const uint8_t *data;
    int64_t size, begin, end, total = 1 + number_size(time_delta) + number_size(offset_delta);
    if (column_get(&source->key, row, &data, &size) < 0)
        return -1;
    total += bytes_size(size);
    if (column_get(&source->value, row, &data, &size) < 0)
        return -1;
    total += bytes_size(size);
    int has = span_of(&source->lists, row, INT64_MAX, &begin, &end);
    if (has < 0)
        return -1;
    if (!has)
        return total + 1;
    total += number_size(end - begin);
    for (; begin < end; begin++) {
        if (column_get(&source->header_keys, begin, &data, &size) < 0)
            return -1;
        if (size < 0) {
            PyErr_SetString(InvalidRecord, "a header has no key; give every header one");
            return -1;
        }
        total += bytes_size(size);
        if (column_get(&source->header_values, begin, &data, &size) < 0)
            return -1;
        total += bytes_size(size);
    }
    return total;
}

/* What record_size has looked at, so that nothing can fail here. */
static uint8_t *write_record(const Source *source, uint8_t *out, int32_t row, int64_t time_delta,
                             int64_t offset_delta)
{
    const uint8_t *data = NULL;
    int64_t size = -1, begin, end;
    *out++ = 0;
    out = write_number(out, time_delta);
    out = write_number(out, offset_delta);
    column_get(&source->key, row, &data, &size);
    out = write_bytes(out, data, size);
    column_get(&source->value, row, &data, &size);
    out = write_bytes(out, data, size);
    if (span_of(&source->lists, row, INT64_MAX, &begin, &end) < 1) {
        *out++ = 0;
        return out;
    }
    out = write_number(out, end - begin);
    for (; begin < end; begin++) {
        column_get(&source->header_keys, begin, &data, &size);
        out = write_bytes(out, data, size);
        column_get(&source->header_values, begin, &data, &size);
        out = write_bytes(out, data, size);
    }
    return out;
}

static inline int32_t row_at(const Source *source, Py_ssize_t at)
{
    int32_t row;
    memcpy(&row, (const char *)source->rows.buf + at * 4, 4);
    return row;
}

static PyObject *encode_rows(const Source *source, Py_ssize_t start, Py_ssize_t max_bytes)
{
    Py_ssize_t count = source->rows.len / 4, stop;
    int64_t base = NO_TIMESTAMP, latest = NO_TIMESTAMP, time, total = HEADER_SIZE;
    if (start < 0 || start > count) {
        out_of_range();
        return NULL;
    }
    for (stop = start; stop < count; stop++) {
        int32_t row = row_at(source, stop);
        if (row_time(source, row, &time) < 0)
            return NULL;
        if (stop == start)
            base = time;
        int64_t size = record_size(source, row, time - base, stop - start);
        if (size < 0)
            return NULL;
        int64_t whole = size + number_size(size);
        if (stop > start && (total + whole > max_bytes || total + whole > INT32_MAX))
            break;
        if (total + whole > INT32_MAX) {
            PyErr_Format(RecordTooLarge, "batch of %lld bytes", (long long)(total + whole));
            return NULL;
        }
        total += whole;
        if (time > latest)
            latest = time;
    }
    PyObject *batch = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (!batch)
        return NULL;
    uint8_t *out = (uint8_t *)PyByteArray_AsString(batch);
    memset(out, 0, HEADER_SIZE);
    out += HEADER_SIZE;
    for (Py_ssize_t at = start; at < stop; at++) {
        int32_t row = row_at(source, at);
        row_time(source, row, &time);
        out = write_number(out, record_size(source, row, time - base, at - start));
        out = write_record(source, out, row, time - base, at - start);
    }
    return Py_BuildValue("NnLL", batch, stop, (long long)base, (long long)latest);
}

static int lists_open(Source *source, PyObject *headers)
{
    PyObject *validity, *keys, *values;
    if (headers == Py_None)
        return 0;
    if (!PyTuple_Check(headers)) {
        PyErr_SetString(PyExc_TypeError, "a column is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(headers, "y*OnpOO:headers", &source->lists.offsets, &validity, &source->lists.start,
                          &source->lists.wide, &keys, &values)) {
        memset(&source->lists, 0, sizeof source->lists);
        return -1;
    }
    if (keys == Py_None) {
        PyErr_SetString(PyExc_TypeError, "headers need a column of keys");
        return -1;
    }
    return spans_open(&source->lists, validity) < 0 || column_open(&source->header_keys, keys) < 0 ||
                   column_open(&source->header_values, values) < 0
               ? -1
               : 0;
}

static PyObject *encode(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *key, *value, *headers, *encoded = NULL;
    Source source;
    Py_ssize_t at, max_bytes;
    memset(&source, 0, sizeof source);
    if (!PyArg_ParseTuple(args, "OOOy*y*nn:encode", &key, &value, &headers, &source.timestamps, &source.rows,
                          &at, &max_bytes))
        return NULL;
    if (column_open(&source.key, key) == 0 && column_open(&source.value, value) == 0 &&
        lists_open(&source, headers) == 0)
        encoded = encode_rows(&source, at, max_bytes);
    column_close(&source.key);
    column_close(&source.value);
    column_close(&source.header_keys);
    column_close(&source.header_values);
    spans_close(&source.lists);
    PyBuffer_Release(&source.timestamps);
    PyBuffer_Release(&source.rows);
    return encoded;
}

/* ---- partitions ---- */

static uint32_t murmur2(const uint8_t *data, uint32_t size)
{
    const uint32_t m = 0x5BD1E995;
    uint32_t hashed = 0x9747B28C ^ size, word;
    for (; size >= 4; data += 4, size -= 4) {
        word = data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        word *= m;
        word = (word ^ word >> 24) * m;
        hashed = hashed * m ^ word;
    }
    if (size) {
        for (word = 0; size; size--)
            word = word << 8 | data[size - 1];
        hashed = (hashed ^ word) * m;
    }
    hashed = (hashed ^ hashed >> 13) * m;
    return hashed ^ hashed >> 15;
}

static PyObject *partitions(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *keys, *numbers = NULL;
    Column column;
    Py_ssize_t rows;
    int count, keyless;
    if (!PyArg_ParseTuple(args, "Onii:partitions", &keys, &rows, &count, &keyless))
        return NULL;
    if (count < 1 || rows < 0 || rows > PY_SSIZE_T_MAX / 16) {
        PyErr_SetString(PyExc_ValueError, "a topic has one partition at least");
        return NULL;
    }
    if (column_open(&column, keys) < 0)
        return NULL;
    if (!(numbers = PyByteArray_FromStringAndSize(NULL, rows * 4)))
        goto done;
    char *out = PyByteArray_AsString(numbers);
    for (Py_ssize_t row = 0; row < rows; row++) {
        const uint8_t *key;
        int64_t size;
        if (column_get(&column, row, &key, &size) < 0) {
            Py_CLEAR(numbers);
            break;
        }
        int32_t number = size < 0 ? keyless : (int32_t)((murmur2(key, (uint32_t)size) & 0x7FFFFFFF) % count);
        memcpy(out + row * 4, &number, 4);
    }
done:
    column_close(&column);
    return numbers;
}

static PyObject *group_rows(const Py_buffer *numbers, int groups, Py_ssize_t *counts)
{
    Py_ssize_t rows = numbers->len / 4;
    const char *from = numbers->buf;
    int32_t number;
    if (rows > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "too many rows for numbers of 32 bits");
        return NULL;
    }
    for (Py_ssize_t row = 0; row < rows; row++) {
        memcpy(&number, from + row * 4, 4);
        if (number < 0 || number >= groups)
            return PyErr_Format(PyExc_IndexError, "row %zd is in group %d, but there are only %d", row, number,
                                groups);
        counts[number]++;
    }
    PyObject *grouped = PyList_New(0);
    if (!grouped)
        return NULL;
    char **outs = PyMem_Calloc((size_t)groups + 1, sizeof *outs);
    if (!outs) {
        Py_DECREF(grouped);
        return PyErr_NoMemory();
    }
    for (int i = 0; i < groups; i++) {
        PyObject *one = PyByteArray_FromStringAndSize(NULL, counts[i] * 4);
        if (!one || PyList_Append(grouped, one) < 0) {
            Py_XDECREF(one);
            Py_CLEAR(grouped);
            goto done;
        }
        outs[i] = PyByteArray_AsString(one);
        Py_DECREF(one);
    }
    for (Py_ssize_t row = 0; row < rows; row++) {
        int32_t index = (int32_t)row;
        memcpy(&number, from + row * 4, 4);
        memcpy(outs[number], &index, 4);
        outs[number] += 4;
    }
done:
    PyMem_Free(outs);
    return grouped;
}

static PyObject *group(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer numbers;
    int groups;
    PyObject *grouped = NULL;
    if (!PyArg_ParseTuple(args, "y*i:group", &numbers, &groups))
        return NULL;
    Py_ssize_t *counts = groups < 0 ? NULL : PyMem_Calloc((size_t)groups + 1, sizeof *counts);
    if (counts)
        grouped = group_rows(&numbers, groups, counts);
    else if (groups < 0)
        PyErr_SetString(PyExc_ValueError, "there cannot be fewer than no groups");
    else
        PyErr_NoMemory();
    PyMem_Free(counts);
    PyBuffer_Release(&numbers);
    return grouped;
}

static PyMethodDef functions[] = {
    {"encode", encode, METH_VARARGS, "The records of rows, with room for a batch's header before them."},
    {"partitions", partitions, METH_VARARGS, "The partition of each key."},
    {"group", group, METH_VARARGS, "For each group its rows."},
    {0},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "posthouse.records._columns",
    .m_doc = "The compiled kernel; see columns.py.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__columns(void)
{
    PyObject *module = NULL, *type = NULL, *errors = PyImport_ImportModule("posthouse.model.errors");
    if (!errors || !(CorruptBatch = PyObject_GetAttrString(errors, "CorruptBatch")) ||
        !(InvalidRecord = PyObject_GetAttrString(errors, "InvalidRecord")) ||
        !(InvalidTimestamp = PyObject_GetAttrString(errors, "InvalidTimestamp")) ||
        !(RecordTooLarge = PyObject_GetAttrString(errors, "RecordTooLarge")))
        goto done;
    if (!(type = PyType_FromSpec(&decoder_spec)) || !(module = PyModule_Create(&module_definition)))
        goto done;
    if (PyModule_AddObjectRef(module, "Decoder", type) < 0)
        Py_CLEAR(module);
done:
    Py_XDECREF(type);
    Py_XDECREF(errors);
    return module;
}
