#include <zero/ops/detail/check_option.ipp>
