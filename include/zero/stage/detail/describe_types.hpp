#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/dtype.hpp"
#include "../../policy/master_weights_policy.hpp"

#include <string>

namespace ZERO_NAMESPACE::detail {

/// @brief Describes the types of one kind of parameters, for `zero::describe`.
/// @tparam Types a `TypeSet`
template <class Types>
[[gnu::cold]] std::string describe_types() {
    std::string const master = Types::master_form == MasterForm::split ? "float32 in parts"
                               : Types::master_form == MasterForm::stochastic
                                   ? "none, rounded stochastically"
                               : Types::has_master ? name_of(dtype_of<typename Types::Master>())
                                                   : "none";
    return text({name_of(dtype_of<typename Types::Parameter>()), " parameters (gradients ",
                 name_of(dtype_of<typename Types::Gradient>()), ", sent as ",
                 name_of(dtype_of<typename Types::Communication>()), ", accumulated in ",
                 name_of(dtype_of<typename Types::Accumulation>()), ", master weights ", master,
                 ")"});
}

} // namespace ZERO_NAMESPACE::detail
