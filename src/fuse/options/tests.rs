use super::*;
use crate::sampler::Mode;

fn parse(list: &str) -> Result<MountOptions> {
    let mut options = MountOptions::default();
    options.add(list).map(|()| options)
}

#[test]
fn values_are_taken() {
    let options = parse("allow_other,uid=7,gid=8,umask=027,threads=3,cache=2,ext=jpg,log=/a\\,b").unwrap();
    let expected = MountOptions {
        allow_other: true,
        uid: Some(7),
        gid: Some(8),
        umask: 0o027,
        threads: Some(3),
        cache: Some(2 << 20),
        ext: Some("jpg".into()),
        log: Some("/a,b".into()),
        ..MountOptions::default()
    };
    assert_eq!(options, expected);
}

#[test]
fn a_stream_is_described() {
    let options =
        parse("mode=shuffle,seed=7,batch_size=32,start=100,length=5000,steps=9,labels=l.zr").unwrap();
    let expected = MountOptions {
        sampler: SamplerOptions { mode: Mode::Shuffle, seed: 7, batch_size: 32, ..SamplerOptions::default() },
        start: 100,
        length: Some(5000),
        steps: 9,
        labels: Some("l.zr".into()),
        ..MountOptions::default()
    };
    assert_eq!(options, expected);
    let view = options.view(1, 2);
    assert_eq!((view.sampler, view.start, view.length, view.steps), (expected.sampler, 100, Some(5000), 9));
    for (list, named) in [
        ("mode=random", "mode=random"),
        ("mode", "mode"),
        ("seed=-1", "seed=-1"),
        ("batch_size=0", "batch_size=0"),
        ("batch_size=16777217", "batch_size=16777217"),
        ("length=0", "length=0"),
        ("length=16777217", "length=16777217"),
        ("steps=16777217", "steps=16777217"),
        ("start", "start"),
        ("labels=", "labels="),
    ] {
        let text = parse(list).unwrap_err().to_string();
        assert!(text.contains(&format!("option {named} ")), "{text}");
    }
}

#[test]
fn data_alone_is_read_only() {
    let view = |list| parse(list).unwrap().view(0, 0);
    assert!(!view("rw,xattr").read_only && !view("ro,rw").read_only);
    assert!(view("ro").read_only && !view("ro").data_only);
    for list in ["dataonly", "dataonly,rw", "rw,dataonly,default_permissions,labels=l.zr"] {
        assert!(view(list).read_only && view(list).data_only, "{list}");
    }
    assert!(parse("xattr").unwrap().xattr);
    for list in ["xattr=1", "dataonly=yes"] {
        assert!(parse(list).is_err(), "{list}");
    }
}

#[test]
fn what_mount_passes_on_changes_nothing() {
    let list = "rw,defaults,_netdev,auto,noauto,user,user=joe,nouser,users,nousers,owner,noowner,group,nogroup,\
                dev,nodev,suid,nosuid,exec,async,sync,dirsync,atime,noatime,diratime,nodiratime,relatime,norelatime,\
                strictatime,nostrictatime,lazytime,nolazytime,silent,loud,iversion,noiversion,mand,nomand,symfollow,\
                seclabel,x-systemd.automount,x-systemd.requires=/a,X-mount.mkdir=0755,comment=a b,helper=h,uhelper=u,\
                default_permissions,fsname=a,subtype=zrfs,nonempty,kernel_cache,auto_cache,big_writes,large_read,,";
    assert_eq!(parse(list).unwrap(), MountOptions::default());
    let context =
        "context=\"system_u:object_r:tmp_t:s0:c127,c456\",fscontext=a,defcontext=b,rootcontext=c,ro";
    let expected = MountOptions { context: true, read_only: true, ..MountOptions::default() };
    assert_eq!(parse(context).unwrap(), expected);
}

#[test]
fn the_last_word_counts() {
    assert!(parse("rw,ro").unwrap().read_only && !parse("ro,rw").unwrap().read_only);
    assert!(parse("exec,noexec").unwrap().noexec && !parse("noexec,exec").unwrap().noexec);
    assert_eq!(parse("seed=1,seed=2").unwrap().sampler.seed, 2);
    let follow = |list| !parse(list).unwrap().no_symlinks;
    assert!(follow("nosymfollow,symfollow") && !follow("symfollow,nosymfollow"));
    assert!(parse("nofail").unwrap().no_fail);
}

#[test]
fn commas_belong_to_values_within_quotes_and_after_backslashes() {
    let labels = |list| parse(list).map(|options| (options.labels.unwrap(), options.read_only));
    for (list, path) in [
        (r#"labels="/a,b.zr",ro"#, "/a,b.zr"),
        (r#"ro,labels="/a,b.zr""#, "/a,b.zr"),
        (r#"labels="/a",ro"#, "/a"),
        (r#"labels=/a","b,ro"#, "/a,b"),
        (r#""labels=/a,b",ro"#, "/a,b"),
        (r"labels=/a\,b,ro", "/a,b"),
        (r#"labels="/a\,b",ro"#, "/a,b"),
        (r#"labels="/a\"b",ro"#, "/a\"b"),
        (r#"labels=/a\"b\\,ro"#, "/a\"b\\"),
        (r#"labels=" /ü,=",ro"#, " /ü,="),
    ] {
        assert_eq!(labels(list).unwrap(), (path.into(), true), "{list}");
    }
    assert_eq!(parse("").unwrap(), MountOptions::default());
    assert_eq!(parse(r#",,"",ro,"#).unwrap(), parse("ro").unwrap());
    for (list, said) in [
        (r#"ro,labels="/a,b"#, "option labels=/a,b has a quote that does not end"),
        (r"ro,labels=/a\", "option labels=/a ends in a backslash; commas in a value need quotes"),
    ] {
        let text = parse(list).unwrap_err().to_string();
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn what_is_not_known_can_be_left_out() {
    let add = |list| MountOptions::default().add_known(list);
    let (known, unknown) = add(r#"ro,wibble,labels="/a,b",wobble="x,y",,user_id=0,x-a,ext=jpg"#).unwrap();
    assert_eq!(known, r#"ro,labels="/a,b",x-a,ext=jpg"#);
    assert_eq!(unknown, ["wibble", "wobble=x,y", "user_id=0"]);
    let mut options = MountOptions::default();
    options.add_known("seed=7,wibble,steps=3").unwrap();
    assert_eq!((options.sampler.seed, options.steps), (7, 3));
    for list in ["seed=x", "seed", "ro=1", "dataonly,idle=1", "labels=\"a"] {
        assert_eq!(add(list).unwrap_err().kind(), ErrorKind::Unsupported, "{list}");
    }
}

#[test]
fn a_remount_is_answered_whatever_comes_with_it() {
    for list in ["remount", "rw,user_id=0,remount", "remount,ro,wibble,seed=x"] {
        let e = parse(list).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Exists, "{list}");
        assert!(e.to_string().contains("fixed while it is mounted"), "{e}");
    }
}

#[test]
fn what_is_not_known_is_named() {
    for (list, named) in [
        ("ro,wibble", "wibble"),
        ("bind", "bind"),
        ("max_read=4096", "max_read=4096"),
        ("setuid=joe", "setuid=joe"),
        ("drop_privileges", "drop_privileges"),
        ("auto_unmount", "auto_unmount"),
        ("uid", "uid"),
        ("uid=x", "uid=x"),
        ("uid=+1", "uid=+1"),
        ("umask=8", "umask=8"),
        ("threads=0", "threads=0"),
        ("ext=a/b", "ext=a/b"),
        ("ext=", "ext="),
        ("ro=1", "ro=1"),
        ("context", "context"),
        ("remount=1", "remount=1"),
        ("allow_root,allow_other", "allow_other"),
        ("dataonly,idle=5", "idle=5"),
        ("idle=5,dataonly", "dataonly"),
    ] {
        let text = parse(list).unwrap_err().to_string();
        assert!(text.contains(&format!("option {named} ")), "{text}");
    }
}

#[test]
fn a_slip_of_the_finger_is_understood() {
    for (list, meant) in [
        ("bach_size=3", "batch_size"),
        ("batchsize=3", "batch_size"),
        ("batch_sizee=3", "batch_size"),
        ("batch_size3", "batch_size"),
        ("lables=/a", "labels"),
        ("data_only", "dataonly"),
        ("allow-other", "allow_other"),
        ("nofial", "nofail"),
        ("contex=a", "context"),
    ] {
        let text = parse(list).unwrap_err().to_string();
        assert!(text.ends_with(&format!("is not known; did you mean {meant}?")), "{text}");
    }
    for list in ["wibble", "batch", "setuid=joe", "é", "="] {
        let text = parse(list).unwrap_err().to_string();
        assert!(text.ends_with("is not known; see zrfs mount --help"), "{text}");
    }
}
