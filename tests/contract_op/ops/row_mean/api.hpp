/* The C contract of op row_mean. */
#include "row_mean/params.h"
