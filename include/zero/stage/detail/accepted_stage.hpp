#pragma once

#include "../../core/detail/require_cxx20.hpp"

#include "../../core/detail/namespace.hpp"
#include "../any_parameter.hpp"
#include "../engine.hpp"
#include "composition_conflict.hpp"
#include "engine_config.hpp"
#include "engine_rebuild.hpp"
#include "make_stage_layout.hpp"

#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The engine of a stage whose policies fit together. It adds the constructor from
/// registered parameters, and the layout that the stage's partitioner and bucketer make.
template <class Stage>
class AcceptedStage : public Engine<typename Stage::EngineConfig> {
    using Base = Engine<typename Stage::EngineConfig>;

public:
    using typename Base::Communicator;
    using typename Base::Options;
    using typename Base::Registration;
    using Composition = Stage; ///< every policy, defaults included
    static constexpr int stage = Stage::stage;

    /// @brief Checks the arguments, makes the layout, allocates everything, and takes over the
    /// initial values. Collective; waits.
    /// @throws InvalidArgument (nothing was sent), LayoutMismatch, CommunicatorError
    AcceptedStage(Communicator& communicator, std::span<Registration const> parameters,
                  Options const& options = {});

    AcceptedStage(Communicator& communicator, std::vector<Registration> const& parameters,
                  Options const& options = {});

private:
    struct Registered {};

    AcceptedStage(Communicator& communicator, std::vector<AnyParameter> const& parameters,
                  Options const& options, Registered);
};

// Defined outside the class, as the members of Engine are, so that `extern template` keeps them out
// of translation units that only declare the stage.

template <class Stage>
[[gnu::cold]] AcceptedStage<Stage>::AcceptedStage(Communicator& communicator,
                                                  std::span<Registration const> parameters,
                                                  Options const& options)
    : AcceptedStage(communicator, register_parameters<typename Stage::EngineConfig>(parameters),
                    options, Registered()) {}

template <class Stage>
[[gnu::cold]] AcceptedStage<Stage>::AcceptedStage(Communicator& communicator,
                                                  std::vector<Registration> const& parameters,
                                                  Options const& options)
    : AcceptedStage(communicator, std::span<Registration const>(parameters), options) {}

template <class Stage>
[[gnu::cold]] AcceptedStage<Stage>::AcceptedStage(Communicator& communicator,
                                                  std::vector<AnyParameter> const& parameters,
                                                  Options const& options, Registered)
    : Base(stage, communicator, parameters, options,
           &make_stage_layout<typename Stage::EngineConfig, typename Stage::Partitioner,
                              typename Stage::Bucketer>) {}

} // namespace ZERO_NAMESPACE::detail
