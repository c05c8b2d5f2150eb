# Makes a small signed world in the working directory for BIND: $1 is the port. The last line is the root's DS.
set -e
ns() { # zone, minimal answers' time to live
    printf '$TTL 300\n@ IN SOA ns.test. admin.test. 1 3600 600 86400 60\n@ IN NS ns.test.\n'
}
keys() { # zone, algorithm
    dnssec-keygen -q -a "$2" -f KSK -n ZONE "$1" >/dev/null
    dnssec-keygen -q -a "$2" -n ZONE "$1" >/dev/null
}
sign() { # zone, file, more
    zone=$1 file=$2; shift 2
    dnssec-signzone -P -S -g -Q -o "$zone" -f "$file.signed" "$@" "$file" >signing.log 2>&1 || { cat signing.log >&2; exit 1; }
}

{ ns; echo 'www IN A 203.0.113.10
www IN A 203.0.113.11
alias IN CNAME WWW.signed.test.
toplain IN CNAME www.plain.test.
*.wild IN A 203.0.113.12
deep.er IN A 203.0.113.13'; } >signed
{ ns; echo 'www IN A 203.0.113.20'; } >plain
{ ns; echo 'www IN A 203.0.113.30'; } >broken
{ ns; echo 'www IN A 203.0.113.40'; } >expired
{ ns; echo 'www IN A 203.0.113.50
*.wild IN A 203.0.113.52
child IN NS ns.test.'; } >optout
{ ns; echo 'www IN A 203.0.113.60'; } >child
{ ns; echo 'www IN A 203.0.113.70'; } >policy

keys signed.test ECDSAP256SHA256; sign signed.test signed
keys broken.test ED25519; sign broken.test broken
sed -i 's/203\.0\.113\.30/203.0.113.31/' broken.signed
keys expired.test ECDSAP384SHA384; sign expired.test expired -s 20200101000000 -e 20200201000000
keys optout.test RSASHA256; sign optout.test optout -3 abcd -A
# Signed by the server itself, under a policy, with a key that is there before.
dnssec-keygen -q -k default policy.test >/dev/null
dnssec-dsfromkey -2 Kpolicy.test.*.key >dsset-policy.test.

{ ns; echo 'ns IN A 127.0.0.1'
for zone in signed plain broken expired optout policy; do echo "$zone IN NS ns.test."; done
cat dsset-policy.test.; } >test
keys test RSASHA512; sign test test -3 -
{ ns; echo 'test. IN NS ns.test.'; } >root
keys . ECDSAP256SHA256; sign . root

zone() { echo "zone \"$1\" { type primary; file \"$2\"; ${3:-} };"; }
{
    echo "options { directory \"$PWD\"; listen-on port $1 { 127.0.0.1; }; listen-on-v6 { none; }; recursion no;
        pid-file \"$PWD/pid\"; session-keyfile \"$PWD/session\"; managed-keys-directory \"$PWD\";
        dnssec-validation no; notify no; };
    controls { };"
    zone . root.signed
    zone test test.signed
    for name in signed broken expired optout; do zone $name.test $name.signed; done
    zone plain.test plain
    zone child.optout.test child
    zone policy.test policy 'dnssec-policy default; inline-signing yes;'
} >named.conf
grep -h . dsset-.
