/* The C contract of op reduce: sums, means, extremes and norms of a matrix x [rows, columns] of fp32, bf16 or fp16.
 *
 * `over` says what goes: `columns` leaves a result per row, `rows` one per column, `all` a single one. Sums are made in fp32; y is fp32, or
 * of x's dtype, and int64 for argmax. ReduceParams and the entry points are generated from op.py; `python -m harness show reduce --api`
 * prints them. */
#ifndef AICF_OPS_REDUCE_API_HPP_
#define AICF_OPS_REDUCE_API_HPP_

#include "reduce/params.h"

#endif /* AICF_OPS_REDUCE_API_HPP_ */
