/* The C contract of op blend. */
#include "blend/params.h"
