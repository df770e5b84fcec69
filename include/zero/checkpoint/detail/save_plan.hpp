#pragma once

#include "../../core/buffer.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/hash.hpp"
#include "../../core/type_name.hpp"
#include "../../stage/detail/common/gather_on_host.hpp"
#include "../../stage/detail/state/add_held_states.hpp"
#include "../../stage/detail/state/state_access.hpp"
#include "../../stage/detail/state/state_table.hpp"
#include "../load_options.hpp"
#include "../manifest.hpp"
#include "base_parameters.hpp"
#include "file_job.hpp"
#include "load_plan.hpp"
#include "on_every_rank.hpp"
#include "plan_manifest.hpp"
#include "scalar_fields.hpp"

#include <algorithm>
#include <condition_variable> // also declares durations, cheaper than <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Writes a file from the memory of an engine, in place where the host can read it.
/// @param staging set to the buffer that this takes; the caller frees it
/// @return the checksum of the file's index
template <class Access>
std::uint64_t write_held(Access const& access, FileJob job, Buffer<std::byte>& staging,
                         OnCaller on_caller) {
    on_caller([&] { staging = staging_buffer<Access>(); });
    auto const copy = [&](void* to, void const* from, std::size_t bytes) {
        on_caller([&] { access.copy(to, from, bytes); });
    };
    return write_file(std::move(job), {staging.data(), copy});
}

/// @brief Returns the default name of a checkpoint: "step-" and eight digits.
[[nodiscard]] inline std::string checkpoint_name(std::uint64_t step_count) {
    std::string number = std::to_string(step_count);
    number.insert(0, number.size() < 8 ? 8 - number.size() : 0, '0');
    return "step-" + number;
}

/// @brief Describes the training state of an engine: the manifest, without checksums, and this
/// rank's data file. Sends nothing. Only rank 0 lists the intervals of all.
template <class Config>
class SavePlan {
public:
    /// @param composition as `describe` prints it
    SavePlan(StateAccess<Config> const& access, std::string composition, SaveOptions const& options)
        : _table(access.layout(), access.arrays()) {
        using Optimizer = typename Config::Optimizer;
        manifest.composition = std::move(composition);
        manifest.extras = options.extras;
        manifest.optimizer = type_name<Optimizer>();
        manifest.types.resize(Config::types);
        _arrays.resize(Config::types);
        for (std::size_t array = 0; array < _table.arrays().size(); ++array) {
            HeldArray const& held = _table.arrays()[array];
            if (held.form.codec != nullptr) {
                continue; // see below
            }
            manifest.types[held.type].push_back({array_name<Optimizer>(held.form),
                                                 dtype_text(held.form), held.form.item_elements,
                                                 held.has_frozen});
            _arrays[held.type].push_back(array);
        }
        add_parameters(manifest, access.layout(),
                       access.rank() == 0 ? std::nullopt : std::optional(access.shard_rank()));
        if constexpr (codes_frozen<Config>) { // a type of their own: decoded, as any engine reads
            for (ManifestParameter& parameter : manifest.parameters) {
                parameter.type = parameter.trainable ? parameter.type : Config::types;
            }
            manifest.types.push_back({{"parameter", dtype_text(DType::float32), 1, true}});
        }
        _places = stored_places(access.layout());
        for (std::size_t parameter = 0; parameter < _places.size(); ++parameter) {
            if (_places[parameter].begin == 0) {
                _first.push_back(parameter);
            }
        }
        std::size_t const all = manifest.parameters.size();
        problem = keep_only(manifest, options, _first);
        selection = options.only.trainable || !options.only.names.empty()
                        ? names_hash(manifest.parameters)
                        : 0;
        for (std::size_t rank = 0; rank < world_of(access); ++rank) {
            if (access.saves(rank)) { // in the order of `StateAccess::shard_rank`
                add_file(access, rank);
            }
        }
        Hash hash;
        std::string const other = add_extra_arrays(manifest, options.arrays, hash);
        problem = problem.empty() ? other : problem;
        if (manifest.parameters.size() + manifest.base.size()
            == all) { // no trainable one is left out
            add_errors(access, hash);
        }
        selection = manifest.arrays.empty() ? selection : hash.add(selection).value();
        add_scalars(access);
        is_first_on_disk = access.rank() == 0;
        name = options.name.empty() ? checkpoint_name(manifest.scalars.counts.at("step_count"))
                                    : options.name;
    }

    /// @brief Returns whether this rank writes a file.
    [[nodiscard]] bool writes() const noexcept { return _file.has_value(); }

    /// @brief Returns this rank's file. @param checkpoint the folder, @param options as they were
    /// when this was made
    [[nodiscard]] FileJob job(std::filesystem::path const& checkpoint,
                              SaveOptions const& options) const {
        FileJob job;
        job.file = checkpoint / manifest.files[*_file].name;
        for (PlannedTensor const& tensor : plan_file(manifest, *_file)) {
            job.tensors.push_back(entry_of(manifest, tensor));
            add_sources(job.sources, tensor);
        }
        std::size_t type = 0; // of the next errors
        for (ManifestExtraArray const& array : manifest.arrays) {
            HeldArray const* const errors =
                array.name.starts_with(errors_prefix) ? &_errors[type++] : nullptr;
            for (ManifestInterval const& interval : array.intervals) {
                if (interval.file != *_file || interval.begin == interval.end) {
                    continue;
                }
                job.tensors.push_back(entry_of(array, interval));
                if (errors == nullptr) {
                    auto const& data = options.arrays.at(array.name).data;
                    job.sources.push_back({data.data(), data.size(), true});
                    continue;
                }
                for (HeldSlice const& slice : errors->slices) {
                    job.sources.push_back({slice.data, errors->bytes(slice.elements)});
                }
            }
        }
        return job;
    }

    /// @brief Completes the manifest with what other ranks hold: rows of arrays, and hashes of the
    /// base. Collective if there are any.
    void complete(StateAccess<Config> const& access, std::chrono::milliseconds file_time_out) {
        gather_rows(access);
        hash_base(access, file_time_out);
    }

    /// @brief Sets the checksums of the files. @param checksums by rank
    void set_checksums(std::vector<std::uint64_t> const& checksums) {
        for (std::size_t file = 0; file < _writers.size(); ++file) {
            manifest.files[file].checksum = checksums[_writers[file]];
            if (!hosts.empty()) {
                manifest.files[file].host = hosts[_writers[file]];
                manifest.files[file].rank = _writers[file];
            }
        }
    }

    Manifest manifest;
    std::string name;               ///< name of the checkpoint
    std::string problem;            ///< why `SaveOptions::only` fits no checkpoint; empty: it fits
    std::uint64_t selection = 0;    ///< hash of parameters and arrays, which ranks compare
    std::vector<std::string> hosts; ///< by rank, if their disks are their own
    bool is_first_on_disk = false;  ///< gives the checkpoint its name there; rank 0 for all

private:
    [[nodiscard]] static std::size_t world_of(StateAccess<Config> const& access) {
        return static_cast<std::size_t>(access.communicator().size());
    }

    /// Adds a file that a rank writes.
    void add_file(StateAccess<Config> const& access, std::size_t rank) {
        std::size_t const file = manifest.files.size();
        std::string number = std::to_string(file);
        number.insert(0, number.size() < 5 ? 5 - number.size() : 0, '0');
        manifest.files.push_back({"data-" + number + ".safetensors", 0});
        _writers.push_back(rank);
        if (rank == access.rank()) {
            _file = file;
        }
    }

    /// Adds what the encoding of gradients lost, unless it counts as 0.
    void add_errors(StateAccess<Config> const& access, Hash& hash) {
        auto const scale = access.error_scale();
        if (!scale) {
            return;
        }
        _errors = access.gradient_errors();
        for (HeldArray const& errors : _errors) {
            manifest.arrays.push_back(errors_array(errors));
        }
        FieldWriter const fields{&manifest.scalars, "gradient_errors."};
        fields("scale", *scale);
        fields("layout", errors_hash(access.layout(), type_name<typename Config::Feedback>()));
        hash.add(double{*scale});
    }

    /// Replaces the rows of this rank by those of all. Ranks that save no state write them as well.
    void gather_rows(StateAccess<Config> const& access) {
        std::vector<std::uint64_t> own;
        for (ManifestExtraArray const& array : manifest.arrays) {
            if (array.is_by_rows) {
                own.push_back(array.rows());
            }
        }
        if (own.empty()) {
            return;
        }
        std::vector<std::uint64_t> all;
        access.guard([&] { all = gather_on_host(access, own, "rows of arrays"); });
        std::vector<std::size_t> files(world_of(access), 0);
        for (std::size_t file = 0; file < _writers.size(); ++file) {
            files[_writers[file]] = file;
        }
        for (std::size_t rank = 0; rank < files.size(); ++rank) {
            auto const first = all.begin() + static_cast<std::ptrdiff_t>(rank * own.size());
            if (!access.saves(rank)
                && std::any_of(first, first + static_cast<std::ptrdiff_t>(own.size()),
                               [](std::uint64_t rows) { return rows != 0; })) {
                files[rank] = manifest.files.size();
                add_file(access, rank);
            }
        }
        std::size_t index = 0; // of arrays by rows
        for (ManifestExtraArray& array : manifest.arrays) {
            if (!array.is_by_rows) {
                continue;
            }
            array.intervals.clear();
            std::uint64_t end = 0;
            for (std::size_t rank = 0; rank < files.size(); ++rank) {
                std::uint64_t const begin = end;
                end += all[rank * own.size() + index];
                array.intervals.push_back({files[rank], begin, end});
            }
            array.shape[0] = end;
            ++index;
        }
    }

    /// Computes the hashes of the parameters that are left out. Collective if there are any.
    void hash_base(StateAccess<Config> const& access, std::chrono::milliseconds file_time_out) {
        if (manifest.base.empty()) {
            return;
        }
        auto const hashes = value_hashes(access, _table, manifest.base, file_time_out);
        for (std::size_t index = 0; index < hashes.size(); ++index) {
            manifest.base[index].hash = hashes[index];
        }
    }

    /// Adds the memory of a tensor: a part of each slice that holds some of it. In stage 0 a slice
    /// may begin before it.
    void add_sources(std::vector<TensorSource>& sources, PlannedTensor const& tensor) const {
        ManifestParameter const& parameter = manifest.parameters[tensor.parameter];
        auto begin = static_cast<std::size_t>(tensor.interval.begin);
        std::size_t own = _first[tensor.parameter]; // in the layout: the tile that holds it
        while (own + 1 < _places.size() && _places[own + 1].parameter == _places[own].parameter
               && _places[own + 1].begin <= begin) {
            ++own;
        }
        begin -= _places[own].begin;
        auto const end = static_cast<std::size_t>(tensor.interval.end) - _places[own].begin;
        std::size_t const array = parameter.type < _arrays.size()
                                      ? _arrays[parameter.type][tensor.array]
                                      : _table.array_of(ArrayKind::parameter, 0, own);
        ArrayForm const& form = _table.arrays()[array].form;
        for (HeldSlice const& slice : _table.slices(array, own)) { // ascending
            bool const is_next = slice.begin <= begin && begin < slice.begin + slice.elements;
            if (!is_next || (begin - slice.begin) % form.item_elements != 0) {
                continue;
            }
            std::size_t const part = smaller(end, slice.begin + slice.elements) - begin;
            sources.push_back(
                {static_cast<std::byte const*>(slice.data) + form.bytes(begin - slice.begin),
                 form.bytes(part), false, form.codec, part});
            begin += part;
            if (begin == end) {
                return;
            }
        }
        throw_error<CheckpointError>(
            {"zero: parameter '", parameter.name,
             "' starts at an element of the adopted block "
             "that is not a multiple of 64, and its ",
             manifest.types[parameter.type][tensor.array].name,
             " cannot be cut there; align parameters in the block, or use owned storage."});
    }

    void add_scalars(StateAccess<Config> const& access) {
        using Scaler = typename Config::LossScaler;
        using Optimizer = typename Config::Optimizer;
        auto const state = access.control().settled();
        FieldWriter const fields{&manifest.scalars, ""};
        fields("step_count", state.step_count);
        fields("skipped_in_a_row", state.skipped_in_a_row);
        if (access.control().limits_norm()) {
            RunningNorm const running = access.control().running_norm();
            fields("running_norm", running.mean);
            fields("running_norm_steps", running.steps);
            fields("too_large", running.too_large);
        }
        auto const updates = access.updates();
        add_updates(manifest.scalars, access.layout(), as_span(updates), state.step_count);
        for_each_tracker<Scaler>(std::as_const(state.scaler),
                                 FieldWriter{&manifest.scalars, "loss_scaler."});
        if constexpr (Config::adds_in_tree) {
            fields("micro_batches", access.options().reduction.micro_batches);
            fields("micro_batch_group", access.options().reduction.micro_batch_group);
        }
        if constexpr (requires { access.options().master_weights.seed; }) {
            fields("master_weights.seed", access.options().master_weights.seed);
        }
        for (std::size_t group = 0; group < access.control().group_count(); ++group) {
            write_group<Optimizer>(access.control(), group, manifest.scalars);
        }
    }

    StateTable _table;
    List<HeldArray> _errors;                       ///< by type; empty: none are saved
    std::vector<std::vector<std::size_t>> _arrays; ///< index in the table, by type and array
    std::vector<StoredPlace> _places;              ///< place of each parameter of the layout
    std::vector<std::size_t>
        _first; ///< first parameter of the layout, by parameter of the manifest
    std::vector<std::size_t> _writers; ///< the rank that writes each file
    std::optional<std::size_t> _file;  ///< that of this rank
};

} // namespace ZERO_NAMESPACE::detail
