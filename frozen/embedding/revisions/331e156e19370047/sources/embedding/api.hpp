/* The C contract of op embedding: rows of a table by index.
 *
 * An index that is negative or not below `vocabulary` reads nothing. With `status` its row of y is NaN and it is counted there (added to
 * what status holds); without, the launch ends with an error. EmbeddingParams and the entry points are generated from op.py;
 * `python -m harness show embedding --api` prints them. */
#ifndef AICF_OPS_EMBEDDING_API_HPP_
#define AICF_OPS_EMBEDDING_API_HPP_

#include "embedding/params.h"

#endif /* AICF_OPS_EMBEDDING_API_HPP_ */
