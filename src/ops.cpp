#include <zero/ops/detail/adagrad.ipp>
#include <zero/ops/detail/check_option.ipp>
#include <zero/ops/detail/lion.ipp>
#include <zero/ops/detail/muon.ipp>
#include <zero/ops/detail/norm.ipp>
#include <zero/ops/detail/sgd.ipp>
#include <zero/ops/detail/validate_adam.ipp>
