#include <zero/policy/detail/dynamic_loss_scaler.ipp>
#include <zero/policy/detail/no_loss_scaler.ipp>
#include <zero/policy/detail/predivide_factor.ipp>
#include <zero/policy/detail/require_scale.ipp>
