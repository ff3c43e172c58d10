/* The C contract of op embedding_backward: the gradient of embedding by its table.
 *
 * All of dtable is written, zeros where no index points. An index that is negative or not below `vocabulary` adds nothing. With `status` it
 * is counted there (added to what status holds); without, the launch ends with an error. EmbeddingBackwardParams and the entry points are
 * generated from op.py; `python -m harness show embedding_backward --api` prints them. */
#ifndef AICF_OPS_EMBEDDING_BACKWARD_API_HPP_
#define AICF_OPS_EMBEDDING_BACKWARD_API_HPP_

#include "embedding_backward/params.h"

#endif /* AICF_OPS_EMBEDDING_BACKWARD_API_HPP_ */
