# The input filter of Doxygen: prints a header line by line, without its namespaces `detail`. Members that every model of a concept has are documented here, once,
# instead of in each model. A comment in the header takes precedence.

function text_for(line) {
    if (line ~ /using policy_category =/) return "The category of this policy; a stage has at most one of a category."
    if (line ~ /using Options =/) return "Run-time options, with their ranges."
    if (line ~ /^struct [A-Za-z]+Options \{\};/) return "No options."
    if (line ~ /^struct [A-Za-z]+Options \{/) { sub(/^struct /, "", line); sub(/Options \{.*/, "", line); return "Run-time options of `" line "`." }
    if (line ~ /static void validate\(Options/) return "Checks the options before anything is allocated. @throws InvalidArgument naming the first option that is out of its range."
    if (line ~ /static void add_to\(Hash/) return "Hashes the options that must be equal on all ranks."
    if (FILENAME ~ /\/layout\//) {
        if (line ~ /struct State \{\};/) return "State carried from bucket to bucket: none."
        if (line ~ /struct State \{/) return "State carried from bucket to bucket."
        if (line ~ /constexpr bool cuts_parameters/) return "Whether a parameter may have several owners, which excludes optimizers of whole parameters."
        if (line ~ /constexpr bool cuts_group/) return "Whether shards are cut from the whole group of parameters instead of bucket by bucket. Collectives are then uneven, and stage 3 is refused."
        if (line ~ /constexpr bool is_even/) return "Whether all extents of a bucket have the same size, as native collectives require."
        if (line ~ /constexpr bool may_span_units/) return "Whether a bucket may hold parameters of several units. Stage 3 refuses such a rule."
        if (line ~ /static State begin\(/) return "The state before the first bucket. `elements` are the sizes of the group's parameters in gradient-ready order."
        if (line ~ /static void partition\(/) return "Gives every item of the next bucket its offset, a multiple of 64, may reorder them, and sets `cuts`: W + 1 monotone offsets, of which rank r owns [cuts[r], cuts[r + 1])."
        if (line ~ /static std::vector<std::size_t> order\(/) return "The order in which buckets are filled, as indices into `elements`."
        if (line ~ /static std::size_t take\(/) return "How many of the next items, in gradient-ready order, form a bucket: from 1 to `items.size()`. Pure."
    }
    if (FILENAME ~ /loss_scaler/) {
        if (line ~ /struct State \{/) return "The whole state of the rule, in the memory of the backend. Trivially copyable, and equal on all ranks."
        if (line ~ /float scale = 1/) return "The factor of the loss: positive and finite."
        if (line ~ /constexpr bool skips_overflow/) return "Whether a step with infinite or NaN gradients changes nothing."
        if (line ~ /static State initial\(/) return "The state before the first step."
        if (line ~ /static State next\(/) return "The state after a step. `overflow` was reduced over all ranks. Pure; callable on host and device."
        if (line ~ /static bool is_exhausted\(/) return "Whether the scale cannot shrink after an overflow in this state."
        if (line ~ /static void validate_state\(/) return "Checks a state that the caller sets. @throws InvalidArgument if the rule cannot continue from it."
    }
    if (FILENAME ~ /\/policy\//) {
        if (line ~ /using Type =/) return "The storage type that the policy chooses; void for none."
        if (line ~ /constexpr MasterForm form/) return "The storage form of the weights."
        if (line ~ /constexpr bool is_block_scaled/) return "Whether each block of 64 states has a scale."
    }
    if (FILENAME ~ /\/ops\//) {
        if (line ~ /struct Hyper \{/) return "The constants of one step, made on the host from options, learning rate and step count."
        if (line ~ /void operator\(\)\(F gradient, F& parameter/) return "Updates one element, or a pack of elements. `gradient` is unscaled, averaged and clipped."
        if (line ~ /static .*std::size_t scratch_floats\(/) return "Floats of scratch memory that the update of a matrix of this shape needs."
    }
    if (FILENAME ~ /\/comm\/|\/cuda\/nccl_communicator|\/mpi\/communicator/) {
        if (line ~ /using Backend =/) return "The backend that owns the communicated memory."
        if (line ~ /using Queue =/) return "The queue on which data movement is enqueued."
        if (line ~ /using Event =/) return "A point in a queue."
        if (line ~ /int rank\(\)/) return "The number of this rank, from 0 to W - 1."
        if (line ~ /int size\(\)/) return "W, the number of ranks of the group."
        if (line ~ /void reduce_scatter\(T/) return "Collective, as `Communicator` says: `send` holds cuts[W] elements, `receive` gets the sum of this rank's extent."
        if (line ~ /void all_gather\(T/) return "Collective, as `Communicator` says: `send` is this rank's extent, `receive` gets cuts[W] elements."
        if (line ~ /void all_reduce\(T/) return "Collective, as `Communicator` says: `receive` gets the sum of cuts[W] elements over all ranks."
        if (line ~ /void broadcast\(T/) return "Collective, as `Communicator` says: all ranks get the elements of `root`."
        if (line ~ /void all_reduce_integers\(/) return "Collective, as `Communicator` says: exact, in place."
        if (line ~ /void abort\(/) return "Releases every rank from every collective with `Aborted`, which holds the cause. Callable from any thread. A provisional cause may be replaced for a moment."
        if (line ~ /void rethrow_failure\(\)/) return "Throws a failure that the transport detected after its calls returned."
        if (line ~ /constexpr bool is_checked/) return "Whether the calls of the ranks are compared before each collective."
        if (line ~ /constexpr bool compares_calls/) return "Whether ranks whose calls or tags differ get CollectiveMismatch."
    }
    if (FILENAME ~ /host_backend|\/cuda\/.*backend/) {
        if (line ~ /using Queue =/) return "A handle of a queue of commands; small and copyable."
        if (line ~ /using Event =/) return "A point in a queue; complete when default-constructed."
        if (line ~ /static Queue handle\(/) return "Returns the handle of a queue that an engine owns."
        if (line ~ /static MemoryResource& default_memory\(/) return "The memory resource of buffers unless the options name another."
        if (line ~ /static Event record\(/) return "Records the point after all commands enqueued so far."
        if (line ~ /static void wait\(/) return "Makes commands enqueued later run after the event. The fence names the reason; tests leave one out."
        if (line ~ /static void synchronise\(/) return "Blocks the calling thread."
        if (line ~ /static void rethrow_failure\(/) return "Throws the exception of a failed command on the queue."
        if (line ~ /static void run\(/) return "Enqueues one call of a functor."
        if (line ~ /static void fill\(/) return "Enqueued: out[i] = value."
        if (line ~ /static void copy_bytes\(/) return "Enqueued: a copy between ranges that do not overlap; a no-op if they are the same."
        if (line ~ /static void convert\(/) return "Enqueued: out[i] = To(float(in[i]) * factor), rounded once."
        if (line ~ /static void accumulate\(/) return "Enqueued: sum[i] = To(float(sum[i]) + float(in[i])), rounded once."
        if (line ~ /static void sum_integers\(/) return "Enqueued: the sum over `world` peers. The pointers must stay valid until the command has run."
        if (line ~ /static void min_integers\(/) return "Enqueued: the minimum over `world` peers. The pointers must stay valid until the command has run."
    }
    if (FILENAME ~ /host\/tensor/ && line ~ /^    (\[\[nodiscard\]\] )?[a-z].*\) const noexcept/) return "As `TensorArchetype` says."
    if (FILENAME ~ /stage\/(weights|gradients|loss_scale|step_report|micro_steps)/ && line ~ /^    (Weights|Gradients|LossScale|StepTicket|MicroSteps)\([A-Za-z].*noexcept|^        Iterator\(Engine/ && line !~ /&&/) return "Called by engines only."
    if (line ~ /^ *[A-Za-z]+(& operator=)?\([A-Za-z]+&& other\) noexcept|^ *[A-Za-z]+\([A-Za-z]+&&\) noexcept = default/) return "Leaves `other` empty."
    if (FILENAME ~ /\/(core|cuda)\/[a-z_]*error/ && line ~ /explicit [A-Za-z]+\(std::string const& message/) return "@param message names the remedy, @param where is the caller, @param code is that of the API below, or 0"
    return ""
}

function comment(text) { return text == "" ? "" : "/** " (text ~ /^@/ ? "" : "@brief ") text " */ " }

function put(line, before) {
    text = before ? "" : text_for(line)
    if (text == "" || line ~ /\/\/\/</) print line
    else if (line ~ /;[^{}]*$/ && line !~ /\(/) print line " ///< " text
    else print comment(text) line
}

# A comment precedes the line `template`, so that line waits for the next one.
{
    is_comment = $0 ~ /^ *\/\/\// || $0 ~ /\*\/ *$/
    if (is_hidden && $0 ~ /^} \/\/ namespace .*detail/) { is_hidden = 0; print "} /** @endcond */"; documented = 0; next }
    if (!is_hidden && $0 ~ /^(inline )?namespace .*detail \{/) { is_hidden = 1; print "/** @cond */ " $0; next }
    if (is_hidden) { print; next }
    if ($0 ~ /^ *template <.*> *$/) { held = $0; has_held = 1; next }
    if (has_held) {
        print comment(documented ? "" : text_for($0)) held
        print
        has_held = 0
    } else {
        put($0, documented)
    }
    documented = is_comment
}
