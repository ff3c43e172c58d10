/* The C contract of op elementwise: a chain of elementwise functions over [rows, columns].
 *
 * `chain` names the expression, and with it which inputs and outputs there are, their dtypes, and whether an input has a value per element,
 * per column, per row or one in all. `counter` holds seed and offset of what is drawn (dropout): the word of an element follows from them
 * and its number, row * columns + column. ElementwiseParams and the entry points are generated from op.py; `python -m harness show
 * elementwise --api` prints them. */
#ifndef AICF_OPS_ELEMENTWISE_API_HPP_
#define AICF_OPS_ELEMENTWISE_API_HPP_

#include "elementwise/params.h"

#endif /* AICF_OPS_ELEMENTWISE_API_HPP_ */
