/* Names of a variant's C entry points: <op>_supports__<suffix>, <op>_workspace_bytes__<suffix>, <op>_launch__<suffix>.
 *
 * The build passes the suffix as AICF_VARIANT, so that any number of variants link into one program. */
#ifndef AICF_OPS_COMMON_ENTRY_H_
#define AICF_OPS_COMMON_ENTRY_H_

#define AICF_CONCAT_(left, right) left##right
#define AICF_CONCAT(left, right) AICF_CONCAT_(left, right)

#define AICF_ENTRY(op, call) AICF_CONCAT(op##_##call##__, AICF_VARIANT)

#define AICF_EXPORT __attribute__((visibility("default")))

#endif /* AICF_OPS_COMMON_ENTRY_H_ */
