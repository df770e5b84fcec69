# cmake -DROOT=<repository> -DWORK=<folder> -DCOMPILER=<compiler> -DVERSION=<version> [-DPREPROCESSES=ON] -P check_module.cmake
# PREPROCESSES: the module reads no file of others after `export module`, in both modes, with any compiler; the control leaves out an include.
# Otherwise COMPILER (clang++ 19) compiles the module, a unit that imports it and one that includes the header, and the program of both runs.

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(flags -std=c++20 "-I${ROOT}/include")

# read_inside(<variable> <source> <flags>...): the files of others that the module reads inside.
function(read_inside variable source)
    execute_process(COMMAND "${COMPILER}" ${flags} ${ARGN} -E -x c++ "${source}" OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
    string(FIND "${text}" "export module zero" begin)
    if(begin LESS 0)
        message(FATAL_ERROR "${source} exports no module 'zero'")
    endif()
    string(SUBSTRING "${text}" ${begin} -1 text)
    string(REGEX REPLACE "[][;]" "" text "${text}")
    string(REGEX MATCHALL "\n# [0-9]+ \"[^\"\n]+\"[ 0-9]*\n[ \n]*[^# \n]" files "${text}") # and a line of text; files that are read a second time have none
    list(FILTER files EXCLUDE REGEX "/include/zero/|/zero.cppm|/control.cppm")
    list(REMOVE_DUPLICATES files)
    set(${variable} "${files}" PARENT_SCOPE)
endfunction()

if(PREPROCESSES)
    foreach(definition IN ITEMS -UZERO_COMPILED -DZERO_COMPILED)
        read_inside(files "${ROOT}/src/zero.cppm" ${definition})
        if(files)
            message(FATAL_ERROR "src/zero.cppm includes too little before 'export module' (${definition}); the headers read ${files}")
        endif()
    endforeach()
    file(READ "${ROOT}/src/zero.cppm" text)
    string(REGEX REPLACE "#include <(vector|span|thread|condition_variable)>\n" "" text "${text}")
    file(WRITE "${WORK}/control.cppm" "${text}")
    read_inside(files "${WORK}/control.cppm")
    if(NOT files MATCHES "/span")
        message(FATAL_ERROR "a module that includes too little was not found")
    endif()
    return()
endif()

function(run)
    execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${WORK}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The commands of docs/compile_time.md
set(folder "${CMAKE_CURRENT_LIST_DIR}/module")
run("${COMPILER}" ${flags} -pthread --precompile "${ROOT}/src/zero.cppm" -o zero.pcm)
run("${COMPILER}" -std=c++20 -pthread -fmodule-file=zero=zero.pcm -c "${folder}/imported.cpp" -o imported.o) # without the folder of the headers
run("${COMPILER}" ${flags} "${folder}/main.cpp" "${folder}/included.cpp" imported.o zero.pcm -pthread -fmodule-file=zero=zero.pcm -o program)
execute_process(COMMAND "${WORK}/program" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output STREQUAL "zero ${VERSION}\n")
    message(FATAL_ERROR "the program printed '${output}', not 'zero ${VERSION}'")
endif()
